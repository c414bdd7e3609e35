import type { Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { crc32, createGunzip, createInflateRaw, type Gunzip, type InflateRaw } from 'node:zlib';
import { type Entry, fromRandomAccessReaderPromise, RandomAccessReader, type ZipFile } from 'yauzl';
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
  const from = await entry.dataOffset();
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
  /** Returns the offset of the compressed bytes. @throws {BrokenZip} */
  dataOffset(): Promise<number>;
}

/** Bytes of a local header without its variable fields. */
const LOCAL_BYTES = 30;

/** Maximum number of files in an archive, and maximum bytes of the names and extra fields in its file list. */
const MAX_ENTRIES = 10_000;
const MAX_LIST_BYTES = 16_777_216;

/**
 * Lists the non-empty files of a zip archive, sorted by name. Hidden files and `__MACOSX` folders are
 * omitted.
 * @throws {BrokenZip}
 */
export async function listZip(handle: FileHandle, size: number): Promise<ZipEntry[]> {
  // Names are only displayed, so yauzl must not reject names such as `../a.csv`.
  const options = { autoClose: false, decodeStrings: false };
  const zip = await describing('it is truncated or damaged', () =>
    fromRandomAccessReaderPromise(new HandleReader(handle), size, options),
  );
  if (zip.entryCount > MAX_ENTRIES) throw new BrokenZip(`it has more than ${MAX_ENTRIES} files`);
  const entries = await describing('its file list is damaged', () => readList(zip));
  refuseOverlaps(entries, size);
  return entries
    .filter(({ name, bytes }) => bytes > 0 && !/(^|\/)(__MACOSX\/|\.[^./])/.test(name))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
}

async function readList(zip: ZipFile): Promise<ZipEntry[]> {
  const entries: ZipEntry[] = [];
  let bytes = 0;
  for await (const entry of zip.eachEntry()) {
    bytes += entry.fileNameLength + entry.extraFieldLength + entry.fileCommentLength;
    if (bytes > MAX_LIST_BYTES) throw new BrokenZip(`its file list is larger than ${MAX_LIST_BYTES} bytes`);
    entries.push(toEntry(zip, entry));
  }
  return entries;
}

function toEntry(zip: ZipFile, entry: Entry): ZipEntry {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal would interpret them
  const name = entry.fileNameRaw.toString('utf8').replace(/[\u0000-\u001f\u007f-\u009f]/g, '?');
  if (entry.isEncrypted()) throw new BrokenZip(`${name} is encrypted`);
  if (!entry.canDecodeFileData())
    throw new BrokenZip(`${name} has an unsupported compression method (${entry.compressionMethod})`);
  const dataOffset = async () => {
    const header = await zip.readLocalFileHeaderPromise(entry, { minimal: true });
    return header.fileDataStart;
  };
  return {
    name,
    isDeflated: entry.compressionMethod === 8,
    crc: entry.crc32,
    packedBytes: entry.compressedSize,
    bytes: entry.uncompressedSize,
    offset: entry.relativeOffsetOfLocalHeader,
    dataOffset: () => describing(`${name} is not at the position in the file list`, dataOffset),
  };
}

/** Runs a call of yauzl and puts a description before the message of its error. @throws {BrokenZip} */
async function describing<Result>(what: string, call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof BrokenZip) throw error;
    throw new BrokenZip(`${what}: ${(error as Error).message}`, { cause: error });
  }
}

/** Reads the headers of an archive for yauzl. `rawBytes` reads the bytes of its files. */
class HandleReader extends RandomAccessReader {
  #handle: FileHandle;

  constructor(handle: FileHandle) {
    super();
    this.#handle = handle;
  }

  // biome-ignore lint/complexity/useMaxParams: the signature of yauzl
  override read(
    target: Buffer,
    offset: number,
    length: number,
    position: number,
    callback: (error: Error | null) => void,
  ): void {
    readAt(this.#handle, position, length).then(
      (bytes) => {
        bytes.copy(target, offset);
        callback(bytes.length < length ? new Error('the archive ends too early') : null);
      },
      (error) => callback(error),
    );
  }
}

/**
 * Rejects entries that share bytes: they would expand to far more than the size of the archive, and no
 * ordinary program writes them.
 */
function refuseOverlaps(entries: readonly ZipEntry[], size: number): void {
  const inOrder = [...entries].sort((one, other) => one.offset - other.offset);
  for (const [index, { name, offset, packedBytes }] of inOrder.entries()) {
    const next = inOrder[index + 1]?.offset ?? size;
    if (offset + LOCAL_BYTES + packedBytes > next)
      throw new BrokenZip(`${name} overlaps the next file in the archive`);
  }
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
