import type { FileHandle } from 'node:fs/promises';
import { crc32, inflateRawSync } from 'node:zlib';
import { readAt } from '../platform/files.ts';
import { type Watcher, watchedStep } from '../platform/steps.ts';
import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import { type AvroType, BrokenAvro, createCursor, type Meaning, plain, readValues } from './avro-values.ts';
import { unsnappy } from './codecs.ts';

/** Bytes of the longest head, whose schema is a text. */
const MOST_HEAD_BYTES = 4_194_304;

/** Bytes of a block, packed and unpacked: programs end theirs behind 64 KB. */
const MOST_BLOCK_BYTES = 16_777_216;

/** Bytes of lines that are handed on together. */
const MOST_HELD_BYTES = 1_048_576;

/** Bytes of a head of a block: two whole numbers. */
const BLOCK_HEAD_BYTES = 20;
const SYNC_BYTES = 16;

/** An Avro file as lines of JSON, an object for each row, in their order. */
export interface AvroLines {
  rows: number;
  lines(onRows: (rows: number) => void): AsyncGenerator<Buffer>;
}

interface Opening {
  /** As the person knows it. */
  name: string;
  size: number;
  /** Bytes that its blocks may have, unpacked. */
  mostBytes: number;
  /** Characters of a row. */
  mostRow: number;
  /** What stands for one that is longer. */
  longLine: Buffer;
  watcher: Watcher;
}

/**
 * Opens an object container file of Avro, and reads each of its rows once.
 *
 * Block, row, schema and the number of values are bounded, whatever the file says of them.
 * @throws {BrokenAvro}
 */
export async function openAvro(
  handle: FileHandle,
  { name, size, mostBytes, mostRow, longLine, watcher }: Opening,
): Promise<AvroLines> {
  const { metadata, end } = await readHead(handle, size);
  const sync = (await readAt(handle, end, SYNC_BYTES)).toString('hex');
  const type = readSchema(metadata.get('avro.schema')?.toString('utf8') ?? '');
  const unpack = unpackerOf(metadata.get('avro.codec')?.toString('latin1') ?? 'null');

  async function* blocks(onBytes?: (bytes: number) => void): AsyncGenerator<{ rows: number; bytes: Buffer }> {
    for (let at = end + SYNC_BYTES; at < size; ) {
      const head = overHead(await readAt(handle, at, Math.min(BLOCK_HEAD_BYTES, size - at)));
      const [rows, length] = [head.count(), head.count()];
      if (rows < 0 || length < 0 || length > MOST_BLOCK_BYTES)
        throw new BrokenAvro(`a block has ${length} bytes; the limit is ${MOST_BLOCK_BYTES} bytes`);
      const bytes = await readAt(handle, at + head.at(), length + SYNC_BYTES);
      if (bytes.length < length + SYNC_BYTES) throw new BrokenAvro('it is truncated');
      if (bytes.toString('hex', length) !== sync)
        throw new BrokenAvro('a block does not end at its given length');
      const unpacked = unpack(bytes.subarray(0, length));
      if (rows > unpacked.length) throw new BrokenAvro('a block has more rows than bytes');
      yield { rows, bytes: unpacked };
      onBytes?.(head.at() + length + SYNC_BYTES);
      at += head.at() + length + SYNC_BYTES;
    }
  }

  let [allRows, allBytes] = [0, 0];
  await watchedStep(watcher, { name, doing: 'checking', of: 'bytes', total: size }, async () => {
    for await (const { rows, bytes } of blocks(watcher.move)) {
      allRows += rows;
      allBytes += bytes.length;
      if (allBytes > mostBytes)
        throw new BrokenAvro(`it has more than ${mostBytes} bytes after decompression, which is the limit`);
      const values = readValues(bytes);
      // Only passed over.
      for (let row = 0; row < rows; row++) values.next(type, -1);
      if (!values.isAtEnd()) throw new BrokenAvro('a block has more bytes than its rows');
    }
  });

  async function* lines(onRows: (rows: number) => void): AsyncGenerator<Buffer> {
    for await (const { rows, bytes } of blocks()) {
      const values = readValues(bytes);
      let held: Buffer[] = [];
      let length = 0;
      for (let row = 0; row < rows; row++) {
        const value = values.next(type, mostRow);
        const line = value === undefined ? longLine : Buffer.from(`${JSON.stringify(value)}\n`);
        held.push(line);
        length += line.length;
        if (length < MOST_HELD_BYTES) continue;
        yield Buffer.concat(held);
        [held, length] = [[], 0];
      }
      yield Buffer.concat(held);
      onRows(rows);
    }
  }
  return { rows: allRows, lines };
}

async function readHead(handle: FileHandle, size: number) {
  // Behind the first four bytes, by which it is known to be Avro.
  const START = 4;
  const bytes = await readAt(handle, START, Math.min(MOST_HEAD_BYTES, size));
  const { count, take, at } = overHead(bytes);
  const next = () => {
    const length = count();
    const from = take(length);
    return bytes.subarray(from, from + length);
  };
  const metadata = new Map<string, Buffer>();
  for (;;) {
    let left = count();
    if (left === 0) return { metadata, end: START + at() };
    if (left < 0) {
      left = -left;
      count();
    }
    for (; left > 0; left--) metadata.set(next().toString('utf8'), next());
  }
}

const BROKEN_HEAD = 'its header is damaged or too long';

/** Over the bytes of a head, whatever is wrong with it. */
const overHead = (bytes: Buffer) =>
  createCursor(bytes, { cut: BROKEN_HEAD, long: BROKEN_HEAD, length: BROKEN_HEAD });

/** @throws {BrokenAvro} when it is packed in a way that is not read */
function unpackerOf(codec: string): (packed: Buffer) => Buffer {
  if (codec === 'null') return (packed) => packed;
  if (codec === 'deflate')
    return (packed) => attempt(() => inflateRawSync(packed, { maxOutputLength: MOST_BLOCK_BYTES }));
  if (codec === 'snappy')
    return (packed) => {
      if (packed.length < 4) throw new BrokenAvro('a block cannot be decompressed: it is truncated');
      const unpacked = attempt(() => unsnappy(packed.subarray(0, -4), MOST_BLOCK_BYTES));
      if (crc32(unpacked) !== packed.readUInt32BE(packed.length - 4))
        throw new BrokenAvro('a block is damaged: its checksum differs');
      return unpacked;
    };
  throw new BrokenAvro(
    `its codec (${codec.slice(0, 50)}) is not supported; write the file with deflate or snappy`,
  );
}

function attempt(unpack: () => Buffer): Buffer {
  try {
    return unpack();
  } catch (error) {
    throw new BrokenAvro(`a block cannot be decompressed: ${(error as Error).message}`, { cause: error });
  }
}

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
    throw new BrokenAvro(`its schema is not valid JSON: ${(error as Error).message}`);
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
    if (!isRecord(given)) throw new BrokenAvro('its schema has an element that is not a type');
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
        throw new BrokenAvro('its schema has a record with unnamed or duplicate fields');
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
  if (type.kind !== 'record') throw new BrokenAvro('its rows are not records');
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
