import type { FileHandle } from 'node:fs/promises';
import { crc32, inflateRawSync } from 'node:zlib';
import { readAt } from '../platform/files.ts';
import { runStep, type Watcher } from '../platform/steps.ts';
import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import {
  type AvroType,
  BrokenAvro,
  createCursor,
  type LogicalType,
  plain,
  readValues,
} from './avro-values.ts';
import { createUnsnappy } from './codecs.ts';

/** Maximum bytes of the header, which contains the schema as text. */
const MAX_HEADER_BYTES = 4_194_304;

/** Maximum bytes of a block, compressed and decompressed. Common programs end a block after 64 KB. */
const MAX_BLOCK_BYTES = 16_777_216;

/** Bytes of lines that are returned in one buffer. */
const MAX_BUFFERED_BYTES = 1_048_576;

/** Maximum bytes of the header of a block, which has two integers. */
const BLOCK_HEADER_BYTES = 20;
const SYNC_BYTES = 16;

/** An Avro file as lines of JSON, one object per row, in the order of the file. */
export interface AvroLines {
  rows: number;
  lines(onRows: (rows: number) => void): AsyncGenerator<Buffer>;
}

interface Opening {
  /** Name of the file as the user entered it. */
  name: string;
  size: number;
  /** Maximum bytes of all blocks after decompression. */
  maxBytes: number;
  /** Approximate maximum bytes of a row as text. */
  maxRowBytes: number;
  /** The line that replaces a row that is longer. */
  longLine: Buffer;
  watcher: Watcher;
}

/**
 * Opens an Avro object container file and checks each of its rows by reading it once.
 *
 * Blocks, rows, the schema and the number of values are limited, whatever the file declares.
 * @throws {BrokenAvro}
 */
export async function openAvro(
  handle: FileHandle,
  { name, size, maxBytes, maxRowBytes, longLine, watcher }: Opening,
): Promise<AvroLines> {
  const { metadata, end } = await readHeader(handle, size);
  const sync = (await readAt(handle, end, SYNC_BYTES)).toString('hex');
  const type = readSchema(metadata.get('avro.schema')?.toString('utf8') ?? '');
  const unpack = unpackerOf(metadata.get('avro.codec')?.toString('latin1') ?? 'null');

  async function* blocks(onBytes?: (bytes: number) => void): AsyncGenerator<{ rows: number; bytes: Buffer }> {
    for (let at = end + SYNC_BYTES; at < size; ) {
      const head = headerCursor(await readAt(handle, at, Math.min(BLOCK_HEADER_BYTES, size - at)));
      const [rows, length] = [head.count(), head.count()];
      if (rows < 0 || length < 0 || length > MAX_BLOCK_BYTES)
        throw new BrokenAvro(`a block has ${length} bytes; the limit is ${MAX_BLOCK_BYTES} bytes`);
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
  await runStep(watcher, { name, doing: 'checking', of: 'bytes', total: size }, async () => {
    for await (const { rows, bytes } of blocks(watcher.move)) {
      allRows += rows;
      allBytes += bytes.length;
      if (allBytes > maxBytes)
        throw new BrokenAvro(`it has more than ${maxBytes} bytes after decompression, which is the limit`);
      const values = readValues(bytes);
      // Skip the value: this pass only checks that the rows can be read.
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
        const value = values.next(type, maxRowBytes);
        const line = value === undefined ? longLine : Buffer.from(`${JSON.stringify(value)}\n`);
        held.push(line);
        length += line.length;
        if (length < MAX_BUFFERED_BYTES) continue;
        yield Buffer.concat(held);
        [held, length] = [[], 0];
      }
      yield Buffer.concat(held);
      onRows(rows);
    }
  }
  return { rows: allRows, lines };
}

async function readHeader(handle: FileHandle, size: number) {
  // The header follows the four bytes that identify Avro.
  const START = 4;
  const bytes = await readAt(handle, START, Math.min(MAX_HEADER_BYTES, size));
  const { count, take, at } = headerCursor(bytes);
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

const BROKEN_HEADER = 'its header is damaged or too long';

/** Creates a cursor over a header. Every error has the same message. */
const headerCursor = (bytes: Buffer) =>
  createCursor(bytes, { cut: BROKEN_HEADER, long: BROKEN_HEADER, length: BROKEN_HEADER });

/** @throws {BrokenAvro} if the codec is not supported */
function unpackerOf(codec: string): (packed: Buffer) => Buffer {
  if (codec === 'null') return (packed) => packed;
  if (codec === 'deflate')
    return (packed) => attempt(() => inflateRawSync(packed, { maxOutputLength: MAX_BLOCK_BYTES }));
  if (codec === 'snappy') {
    const unsnappy = createUnsnappy(MAX_BLOCK_BYTES);
    return (packed) => {
      if (packed.length < 4) throw new BrokenAvro('a block cannot be decompressed: it is truncated');
      const unpacked = attempt(() => unsnappy(packed.subarray(0, -4)));
      if (crc32(unpacked) !== packed.readUInt32BE(packed.length - 4))
        throw new BrokenAvro('a block is damaged: its checksum differs');
      return unpacked;
    };
  }
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

/** Maximum number of types in a schema, maximum depth of their nesting, and maximum bytes of a fixed type. */
const MAX_TYPES = 10_000;
const MAX_DEPTH = 32;
const MAX_FIXED_BYTES = 1_048_576;

interface Scope {
  namespace: string;
  depth: number;
}

/**
 * Parses the schema of a file.
 * @throws {BrokenAvro} if it is not a schema of records or is too large
 */
export function readSchema(text: string): AvroType {
  let schema: Json;
  try {
    schema = JSON.parse(text) as Json;
  } catch (error) {
    throw new BrokenAvro(`its schema is not valid JSON: ${(error as Error).message}`);
  }
  const typesByName = new Map<string, AvroType>();
  let count = 0;

  function read(given: Json | undefined, scope: Scope): AvroType {
    count += 1;
    if (count > MAX_TYPES) throw new BrokenAvro(`its schema has more than ${MAX_TYPES} types`);
    if (scope.depth > MAX_DEPTH) throw new BrokenAvro(`its schema is nested deeper than ${MAX_DEPTH}`);
    const nested = { ...scope, depth: scope.depth + 1 };
    if (Array.isArray(given)) return { kind: 'union', branches: given.map((one) => read(one, nested)) };
    if (typeof given === 'string') return named(given, scope.namespace);
    if (!isRecord(given)) throw new BrokenAvro('its schema has an element that is not a type');
    const { type } = given;
    if (type === 'array' || type === 'map') {
      const items = read(type === 'array' ? given.items : given.values, nested);
      return { kind: type, items };
    }
    if (type === 'record' || type === 'error') return record(given, nested);
    if (type === 'enum') {
      const symbols = Array.isArray(given.symbols) ? given.symbols.map(String) : [];
      return define(given, scope.namespace, { kind: 'enum', symbols });
    }
    if (type === 'fixed') {
      const bytes = Number(given.size);
      if (!Number.isInteger(bytes) || bytes < 0 || bytes > MAX_FIXED_BYTES)
        throw new BrokenAvro('its schema has a fixed type without a size');
      return define(given, scope.namespace, { kind: 'fixed', bytes, meaning: meaningOf(given) });
    }
    const inner = read(type, nested);
    return 'kind' in inner && (plain as readonly string[]).includes(inner.kind)
      ? ({ ...inner, meaning: meaningOf(given) } as AvroType)
      : inner;
  }

  function record(given: Record<string, Json>, scope: Scope): AvroType {
    const fields: { name: string; type: AvroType }[] = [];
    // Register the type before reading its fields, because a field may have the same type.
    const type = define(given, scope.namespace, { kind: 'record', fields });
    const namespace = fullName(given, scope.namespace).replace(/\.?[^.]*$/, '');
    const names = new Set<string>();
    for (const field of Array.isArray(given.fields) ? given.fields : []) {
      if (!isRecord(field) || typeof field.name !== 'string' || names.has(field.name))
        throw new BrokenAvro('its schema has a record with unnamed or duplicate fields');
      names.add(field.name);
      fields.push({ name: field.name, type: read(field.type, { ...scope, namespace }) });
    }
    return type;
  }

  function define(given: Record<string, Json>, namespace: string, type: AvroType): AvroType {
    typesByName.set(fullName(given, namespace), type);
    return type;
  }

  function named(name: string, namespace: string): AvroType {
    const kind = plain.find((one) => one === name);
    if (kind) return { kind };
    const namedType =
      typesByName.get(name.includes('.') || !namespace ? name : `${namespace}.${name}`) ??
      typesByName.get(name);
    if (!namedType) throw new BrokenAvro(`its schema has no type ${name.slice(0, 100)}`);
    return namedType;
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

function meaningOf({ logicalType, scale = 0 }: Record<string, Json>): LogicalType | undefined {
  if (logicalType === 'date') return 'date';
  if (logicalType === 'timestamp-millis' || logicalType === 'local-timestamp-millis') return 'millis';
  if (logicalType === 'timestamp-micros' || logicalType === 'local-timestamp-micros') return 'micros';
  const isScale = Number.isInteger(scale) && Number(scale) >= 0 && Number(scale) <= 100;
  return logicalType === 'decimal' && isScale ? { scale: Number(scale) } : undefined;
}
