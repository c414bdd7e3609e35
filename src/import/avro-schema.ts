import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import { type AvroType, BrokenAvro, type Meaning, plain } from './avro-values.ts';

/** Types of one schema, and how deep they may lie within one another. */
const MOST_TYPES = 10_000;
const MOST_DEPTH = 32;
const MOST_FIXED = 1_048_576;

interface Place {
  namespace: string;
  depth: number;
}

/**
 * The type of a file's rows.
 * @throws {BrokenAvro} when it is no schema of records, or too large a one
 */
export function readSchema(text: string): AvroType {
  let schema: Json;
  try {
    schema = JSON.parse(text) as Json;
  } catch (error) {
    throw new BrokenAvro(`its schema is no JSON: ${(error as Error).message}`);
  }
  const known = new Map<string, AvroType>();
  let count = 0;

  function read(given: Json | undefined, place: Place): AvroType {
    count += 1;
    if (count > MOST_TYPES) throw new BrokenAvro(`its schema has more than ${MOST_TYPES} types`);
    if (place.depth > MOST_DEPTH) throw new BrokenAvro(`its schema is nested deeper than ${MOST_DEPTH}`);
    const within = { ...place, depth: place.depth + 1 };
    if (Array.isArray(given)) return { kind: 'union', branches: given.map((one) => read(one, within)) };
    if (typeof given === 'string') return named(given, place.namespace);
    if (!isRecord(given)) throw new BrokenAvro('its schema has something that is no type');
    const { type } = given;
    if (type === 'array' || type === 'map') {
      const items = read(type === 'array' ? given.items : given.values, within);
      return { kind: type, items };
    }
    if (type === 'record' || type === 'error') return record(given, within);
    if (type === 'enum') {
      const symbols = Array.isArray(given.symbols) ? given.symbols.map(String) : [];
      return define(given, place.namespace, { kind: 'enum', symbols });
    }
    if (type === 'fixed') {
      const bytes = Number(given.size);
      if (!Number.isInteger(bytes) || bytes < 0 || bytes > MOST_FIXED)
        throw new BrokenAvro('its schema has a fixed type without a size');
      return define(given, place.namespace, { kind: 'fixed', bytes, meaning: meaningOf(given) });
    }
    const inner = read(type, within);
    return 'kind' in inner && (plain as readonly string[]).includes(inner.kind)
      ? ({ ...inner, meaning: meaningOf(given) } as AvroType)
      : inner;
  }

  function record(given: Record<string, Json>, place: Place): AvroType {
    const fields: { name: string; type: AvroType }[] = [];
    // Known before its fields are read: one of them may be a record of the same type.
    const type = define(given, place.namespace, { kind: 'record', fields });
    const namespace = fullName(given, place.namespace).replace(/\.?[^.]*$/, '');
    const names = new Set<string>();
    for (const field of Array.isArray(given.fields) ? given.fields : []) {
      if (!isRecord(field) || typeof field.name !== 'string' || names.has(field.name))
        throw new BrokenAvro('its schema has a record whose fields cannot be told apart');
      names.add(field.name);
      fields.push({ name: field.name, type: read(field.type, { ...place, namespace }) });
    }
    return type;
  }

  function define(given: Record<string, Json>, namespace: string, type: AvroType): AvroType {
    known.set(fullName(given, namespace), type);
    return type;
  }

  function named(name: string, namespace: string): AvroType {
    const kind = plain.find((one) => one === name);
    if (kind) return { kind };
    const found =
      known.get(name.includes('.') || !namespace ? name : `${namespace}.${name}`) ?? known.get(name);
    if (!found) throw new BrokenAvro(`its schema has no type ${name.slice(0, 100)}`);
    return found;
  }

  const type = read(schema, { namespace: '', depth: 0 });
  if (type.kind !== 'record') throw new BrokenAvro('its rows are no records');
  return type;
}

function fullName({ name, namespace }: Record<string, Json>, outer: string): string {
  if (typeof name !== 'string') throw new BrokenAvro('its schema has a type without a name');
  const space = typeof namespace === 'string' ? namespace : outer;
  return name.includes('.') || space === '' ? name : `${space}.${name}`;
}

function meaningOf({ logicalType, scale = 0 }: Record<string, Json>): Meaning | undefined {
  if (logicalType === 'date') return 'date';
  if (logicalType === 'timestamp-millis' || logicalType === 'local-timestamp-millis') return 'millis';
  if (logicalType === 'timestamp-micros' || logicalType === 'local-timestamp-micros') return 'micros';
  const isScale = Number.isInteger(scale) && Number(scale) >= 0 && Number(scale) <= 100;
  return logicalType === 'decimal' && isScale ? { scale: Number(scale) } : undefined;
}
