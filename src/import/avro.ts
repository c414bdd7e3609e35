import type { FileHandle } from 'node:fs/promises';
import { crc32, inflateRawSync } from 'node:zlib';
import { type Watcher, watchedStep } from '../platform/steps.ts';
import { readSchema } from './avro-schema.ts';
import { BrokenAvro, readValues } from './avro-values.ts';
import { unsnappy } from './snappy.ts';

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
      const head = createReader(await readAt(handle, at, Math.min(BLOCK_HEAD_BYTES, size - at)));
      const [rows, length] = [head.number(), head.number()];
      if (rows < 0 || length < 0 || length > MOST_BLOCK_BYTES)
        throw new BrokenAvro(`a block says that it has ${length} bytes, and ${MOST_BLOCK_BYTES} are read`);
      const bytes = await readAt(handle, at + head.at(), length + SYNC_BYTES);
      if (bytes.length < length + SYNC_BYTES) throw new BrokenAvro('it was cut');
      if (bytes.toString('hex', length) !== sync) throw new BrokenAvro('a block does not end where it says');
      const unpacked = unpack(bytes.subarray(0, length));
      if (rows > unpacked.length) throw new BrokenAvro('a block says that it has more rows than bytes');
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
        throw new BrokenAvro(`it is not read: it has more than ${mostBytes} bytes, unpacked`);
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
  const head = createReader(await readAt(handle, START, Math.min(MOST_HEAD_BYTES, size)));
  const metadata = new Map<string, Buffer>();
  for (;;) {
    let left = head.number();
    if (left === 0) return { metadata, end: START + head.at() };
    if (left < 0) {
      left = -left;
      head.number();
    }
    for (; left > 0; left--) metadata.set(head.bytes().toString('utf8'), head.bytes());
  }
}

/** Reads whole numbers and bytes of a head, one after the other. @throws {BrokenAvro} */
function createReader(buffer: Buffer) {
  let at = 0;
  function number(): number {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = buffer[at++];
      if (byte === undefined) break;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte >= 0x80) continue;
      const found = Number((value & 1n) === 0n ? value >> 1n : -((value + 1n) >> 1n));
      if (Number.isSafeInteger(found)) return found;
      break;
    }
    throw new BrokenAvro('its head is broken, or longer than is read');
  }
  return {
    at: () => at,
    number,
    bytes(): Buffer {
      const length = number();
      if (length < 0 || length > buffer.length - at)
        throw new BrokenAvro('its head is broken, or longer than is read');
      at += length;
      return buffer.subarray(at - length, at);
    },
  };
}

/** @throws {BrokenAvro} when it is packed in a way that is not read */
function unpackerOf(codec: string): (packed: Buffer) => Buffer {
  if (codec === 'null') return (packed) => packed;
  if (codec === 'deflate')
    return (packed) => attempt(() => inflateRawSync(packed, { maxOutputLength: MOST_BLOCK_BYTES }));
  if (codec === 'snappy')
    return (packed) => {
      if (packed.length < 4) throw new BrokenAvro('a block cannot be unpacked: it was cut');
      const unpacked = attempt(() => unsnappy(packed.subarray(0, -4), MOST_BLOCK_BYTES));
      if (crc32(unpacked) !== packed.readUInt32BE(packed.length - 4))
        throw new BrokenAvro('a block is not what was packed');
      return unpacked;
    };
  throw new BrokenAvro(
    `it is packed in a way that is not read (${codec.slice(0, 50)}); write it with deflate or snappy`,
  );
}

function attempt(unpack: () => Buffer): Buffer {
  try {
    return unpack();
  } catch (error) {
    throw new BrokenAvro(`a block cannot be unpacked: ${(error as Error).message}`, { cause: error });
  }
}

/** Fewer at the end of the file. */
async function readAt(handle: FileHandle, at: number, bytes: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(bytes), 0, bytes, at);
  return buffer.subarray(0, bytesRead);
}
