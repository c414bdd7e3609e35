import type { Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createInflateRaw, type Gunzip, type InflateRaw } from 'node:zlib';
import { checked, placeOf, type ZipEntry } from './zip.ts';
import { unzstd } from './zstd.ts';

/** The texts of a file: itself, what was packed, or the entries of an archive. */

/** What a person at the command line has to mend: the file, where in it, and the rule. */
export class ImportError extends Error {
  override name = 'ImportError';
}

/** One text within a file: the file itself, unpacked if it was packed, or an entry of an archive. */
export interface Part {
  /** For messages: the file, and the entry within it. */
  name: string;
  bytes(): AsyncIterable<Buffer>;
}

export type Kind = 'plain' | 'gzip' | 'zstd' | 'zip' | Table;

/** Files that have rows of columns instead of a text. */
type Table = 'parquet' | 'avro';

const CHUNK_BYTES = 1_048_576;

export interface Source {
  handle: FileHandle;
  name: string;
  size: number;
  kind: Kind;
  /** Of an archive. */
  entries: readonly ZipEntry[];
  /** Told of each piece that is read of the file. */
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
  const from = await placeOf(source.handle, entry);
  const packed = rawBytes({ ...source, from, size: Math.min(source.size, from + entry.packedBytes) });
  yield* checked(entry.isDeflated ? unzipped(packed, name, createInflateRaw(UNZIP)) : packed, entry);
}

/** The bytes that the file had when it was opened. */
export async function* rawBytes(
  { handle, name, size, onBytes, from = 0 }: Omit<Source, 'kind' | 'entries'> & { from?: number },
  hash?: Hash,
): AsyncGenerator<Buffer> {
  let at = from;
  while (at < size) {
    const wanted = Math.min(CHUNK_BYTES, size - at);
    // Not one buffer for all: what is read is held on to for a while.
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(wanted), 0, wanted, at);
    if (bytesRead === 0)
      throw new ImportError(`${name} ends behind byte ${at}: it was cut while it was read`);
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
  // What goes wrong comes out of the reading below.
  const fed = pipeline(packed, unzip).catch(() => {});
  try {
    for await (const chunk of unzip) yield chunk as Buffer;
    await fed;
  } catch (error) {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`${name} cannot be unpacked: ${(error as Error).message}`, { cause: error });
  }
}
