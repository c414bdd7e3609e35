import type { Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { crc32, createGunzip, createInflateRaw, type Gunzip, type InflateRaw } from 'node:zlib';
import { readAt } from '../platform/files.ts';
import { unzstd } from './codecs.ts';

/** Reads the texts of a file: the file itself, its decompressed content, or the entries of an archive. */

/**
 * Thrown for an error that a user of the command line must fix. The message names the file, the position and
 * the rule.
 */
export class ImportError extends Error {
  override name = 'ImportError';
}

/** Thrown for a file without rows, for example with only a header or empty lines. */
export class NoRows extends ImportError {}

/** One text in a file: the file itself, decompressed if necessary, or an entry of an archive. */
export interface Part {
  /** Name for messages: the file and the entry in it. */
  name: string;
  bytes(): AsyncIterable<Buffer>;
}

export type Kind = 'plain' | 'gzip' | 'zstd' | 'zip' | Table;

/** Binary formats with rows and columns. */
type Table = 'parquet' | 'avro';

const CHUNK_BYTES = 1_048_576;

export interface Source {
  handle: FileHandle;
  name: string;
  size: number;
  kind: Kind;
  /** Entries of an archive. */
  entries: readonly ZipEntry[];
  /** Called with the number of bytes of each read. */
  onBytes?: (bytes: number) => void;
}

export async function* partsOf(source: Source, hash?: Hash): AsyncGenerator<Part> {
  const { name, kind, entries } = source;
  if (kind !== 'zip') yield { name, bytes: () => unpacked(kind, rawBytes(source, hash), name) };
  for (const entry of entries)
    yield { name: `${name}: ${entry.name}`, bytes: () => entryBytes(source, entry) };
}

function unpacked(kind: Kind, packed: AsyncGenerator<Buffer>, name: string): AsyncGenerator<Buffer> {
  if (kind === 'gzip') return unzipped(packed, name, createGunzip(UNZIP));
  return kind === 'zstd' ? unzstd(packed) : packed;
}

async function* entryBytes(source: Source, entry: ZipEntry): AsyncGenerator<Buffer> {
  const name = `${source.name}: ${entry.name}`;
  const from = await dataOffset(source.handle, entry);
  const packed = rawBytes({ ...source, from, size: Math.min(source.size, from + entry.packedBytes) });
  yield* checked(entry.isDeflated ? unzipped(packed, name, createInflateRaw(UNZIP)) : packed, entry);
}

/** Reads the bytes that the file had when it was opened. */
export async function* rawBytes(
  { handle, name, size, onBytes, from = 0 }: Omit<Source, 'kind' | 'entries'> & { from?: number },
  hash?: Hash,
): AsyncGenerator<Buffer> {
  let at = from;
  while (at < size) {
    const wanted = Math.min(CHUNK_BYTES, size - at);
    // Allocate a new buffer for each read, because callers hold the chunks for a while.
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(wanted), 0, wanted, at);
    if (bytesRead === 0)
      throw new ImportError(`${name} ends after byte ${at}: it was truncated while it was being read`);
    const chunk = buffer.subarray(0, bytesRead);
    hash?.update(chunk);
    at += bytesRead;
    onBytes?.(bytesRead);
    yield chunk;
  }
}

const UNZIP = { chunkSize: 262_144 };

async function* unzipped(
  packed: AsyncIterable<Buffer>,
  name: string,
  unzip: Gunzip | InflateRaw,
): AsyncGenerator<Buffer> {
  // A failure is thrown by the loop below.
  const fed = pipeline(packed, unzip).catch(() => {});
  try {
    for await (const chunk of unzip) yield chunk as Buffer;
    await fed;
  } catch (error) {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`${name} cannot be decompressed: ${(error as Error).message}`, { cause: error });
  }
}

/** Thrown for an archive that cannot be read. The message does not contain the name of the file. */
export class BrokenZip extends Error {
  override name = 'BrokenZip';
}

/** A file in an archive. Its name is only displayed and never used as a path. */
interface ZipEntry {
  name: string;
  isDeflated: boolean;
  crc: number;
  packedBytes: number;
  bytes: number;
  /** Offset of the local header, which precedes the bytes of the file. */
  offset: number;
}

const END = 0x06054b50;
const END_BYTES = 22;
/** A comment may follow the end record. */
const MAX_COMMENT_BYTES = 65_535;
const END_64_LOCATOR = 0x07064b50;
const LOCATOR_BYTES = 20;
const END_64 = 0x06064b50;
const END_64_BYTES = 56;
const CENTRAL = 0x02014b50;
const CENTRAL_BYTES = 46;
const LOCAL = 0x04034b50;
const LOCAL_BYTES = 30;

/** Maximum number of files in an archive, and maximum bytes of its file list. */
const MAX_ENTRIES = 10_000;
const MAX_LIST_BYTES = 16_777_216;

const IN_64_BITS = 0xffffffff;

/**
 * Lists the non-empty files of a zip archive, sorted by name. Hidden files and `__MACOSX` folders are
 * omitted.
 * @throws {BrokenZip}
 */
export async function listZip(handle: FileHandle, size: number): Promise<ZipEntry[]> {
  const { at, bytes, count } = await findList(handle, size);
  if (count > MAX_ENTRIES) throw new BrokenZip(`it has more than ${MAX_ENTRIES} files`);
  if (bytes > MAX_LIST_BYTES || at + bytes > size) throw new BrokenZip('its file list is damaged');
  const list = await readRange(handle, at, bytes);
  const entries: ZipEntry[] = [];
  for (let index = 0, from = 0; index < count; index++) {
    if (from + CENTRAL_BYTES > list.length || list.readUInt32LE(from) !== CENTRAL)
      throw new BrokenZip('its file list is damaged');
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((field) =>
      list.readUInt16LE(from + field),
    );
    const nameEnd = from + CENTRAL_BYTES + nameBytes!;
    entries.push(readEntry(list.subarray(from, nameEnd), list.subarray(nameEnd, nameEnd + extraBytes!)));
    from = nameEnd + extraBytes! + commentBytes!;
  }
  refuseOverlaps(entries, at);
  return entries
    .filter(({ name, bytes }) => bytes > 0 && !/(^|\/)(__MACOSX\/|\.[^./])/.test(name))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
}

/**
 * Rejects entries that share bytes: they would expand to far more than the size of the archive, and no
 * ordinary program writes them.
 */
function refuseOverlaps(entries: readonly ZipEntry[], list: number): void {
  const inOrder = [...entries].sort((one, other) => one.offset - other.offset);
  for (const [index, { name, offset, packedBytes }] of inOrder.entries()) {
    const next = inOrder[index + 1]?.offset ?? list;
    if (offset + LOCAL_BYTES + packedBytes > next)
      throw new BrokenZip(`${name} overlaps the next file in the archive`);
  }
}

function readEntry(fixed: Buffer, extra: Buffer): ZipEntry {
  const [flags, method] = [fixed.readUInt16LE(8), fixed.readUInt16LE(10)];
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal would interpret them
  const name = fixed.toString('utf8', CENTRAL_BYTES).replace(/[\u0000-\u001f\u007f-\u009f]/g, '?');
  if ((flags & 1) === 1) throw new BrokenZip(`${name} is encrypted`);
  if (method !== 0 && method !== 8)
    throw new BrokenZip(`${name} has an unsupported compression method (${method})`);
  const long = readLong(extra);
  const take = (field: number) => {
    const value = fixed.readUInt32LE(field);
    return value === IN_64_BITS ? (long.shift() ?? value) : value;
  };
  // The extra field holds these numbers in this order.
  const [bytes, packedBytes, offset] = [take(24), take(20), take(42)];
  return { name, isDeflated: method === 8, crc: fixed.readUInt32LE(16), packedBytes, bytes, offset };
}

/** Returns the numbers of the extra field that do not fit into 32 bits. */
function readLong(extra: Buffer): number[] {
  for (let at = 0; at + 4 <= extra.length; ) {
    const [id, bytes] = [extra.readUInt16LE(at), extra.readUInt16LE(at + 2)];
    const field = extra.subarray(at + 4, at + 4 + bytes);
    if (id === 1)
      return Array.from({ length: field.length >> 3 }, (_, index) =>
        Number(field.readBigUInt64LE(index * 8)),
      );
    at += 4 + bytes;
  }
  return [];
}

async function findList(handle: FileHandle, size: number) {
  const tail = await readRange(
    handle,
    Math.max(0, size - END_BYTES - MAX_COMMENT_BYTES),
    END_BYTES + MAX_COMMENT_BYTES,
  );
  let end = tail.length - END_BYTES;
  while (end >= 0 && tail.readUInt32LE(end) !== END) end -= 1;
  if (end < 0) throw new BrokenZip('it is truncated: its end record is missing');
  const record = {
    count: tail.readUInt16LE(end + 10),
    bytes: tail.readUInt32LE(end + 12),
    at: tail.readUInt32LE(end + 16),
  };
  if (end < LOCATOR_BYTES || tail.readUInt32LE(end - LOCATOR_BYTES) !== END_64_LOCATOR) return record;
  const long = await readRange(handle, Number(tail.readBigUInt64LE(end - LOCATOR_BYTES + 8)), END_64_BYTES);
  if (long.length < END_64_BYTES || long.readUInt32LE(0) !== END_64)
    throw new BrokenZip('its end record is damaged');
  const [count, bytes, at] = [32, 40, 48].map((field) => Number(long.readBigUInt64LE(field)));
  return { count: count!, bytes: bytes!, at: at! };
}

/** Reads bytes at an offset; fewer at the end of the file. @throws {BrokenZip} */
function readRange(handle: FileHandle, at: number, bytes: number): Promise<Buffer> {
  if (!Number.isSafeInteger(at)) throw new BrokenZip('it has an offset that is out of range');
  return readAt(handle, at, bytes);
}

/** Returns the offset of the compressed bytes of an entry. @throws {BrokenZip} */
async function dataOffset(handle: FileHandle, { name, offset }: ZipEntry): Promise<number> {
  const header = await readRange(handle, offset, LOCAL_BYTES);
  if (header.length < LOCAL_BYTES || header.readUInt32LE(0) !== LOCAL)
    throw new BrokenZip(`${name} is not at the position in the file list`);
  return offset + LOCAL_BYTES + header.readUInt16LE(26) + header.readUInt16LE(28);
}

/** Passes on the decompressed bytes of an entry. @throws {BrokenZip} if their length or checksum differs */
async function* checked(
  chunks: AsyncIterable<Buffer>,
  { name, crc, bytes }: ZipEntry,
): AsyncGenerator<Buffer> {
  let [sum, length] = [0, 0];
  for await (const chunk of chunks) {
    sum = crc32(chunk, sum);
    length += chunk.length;
    if (length > bytes) break;
    yield chunk;
  }
  if (length !== bytes || sum !== crc)
    throw new BrokenZip(`${name} is damaged: its length or checksum differs`);
}
