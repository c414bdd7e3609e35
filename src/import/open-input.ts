import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { MAX_ROW_BYTES } from '../integrations/csv-scanner.ts';
import type { ParquetLines, ParquetOptions } from '../integrations/files/parquet-lines.ts';
import { documentOf, foreignFormatOf } from '../integrations/foreign-formats.ts';
import { SourceError } from '../integrations/source.ts';
import { readAt } from '../platform/files.ts';
import { runStep, unwatched, type Watcher } from '../platform/steps.ts';
import { type AvroLines, openAvro } from './avro.ts';
import { BrokenAvro } from './avro-values.ts';
import { BrokenZstd } from './codecs.ts';
import { longLine } from './reader.ts';
import {
  BrokenZip,
  ImportError,
  type Kind,
  listZip,
  type Part,
  partsOf,
  rawBytes,
  type Source,
} from './unpack.ts';

/** A file that was read completely once, so its later parts are known to be complete. */
export interface Input {
  /** Name of the file as the user entered it. */
  name: string;
  /** Path of the file on this machine. */
  path: string;
  kind: Kind;
  /** Name of the first file in an archive; otherwise the name of the file. */
  innerName: string;
  /** SHA-256 of the bytes of the file, before decompression. */
  digest: Buffer;
  /** Bytes of the decompressed text, or number of rows of a table. */
  length: number;
  parts(): AsyncIterable<Part>;
  /** Returns how much of `length` has been read through `parts`. */
  read(): number;
  /** @throws {ImportError} when the file has been changed since it was opened */
  requireUnchanged(): Promise<void>;
  close(): Promise<void>;
}

/**
 * A decompressed text may have `MAX_RATIO` times the bytes of its file, and always `ALWAYS_ALLOWED_BYTES`. A
 * larger one is treated as a decompression bomb.
 */
const MAX_RATIO = 250;
const ALWAYS_ALLOWED_BYTES = 67_108_864;

export interface Opening {
  /** Path of the file, if it differs from the name. */
  path?: string;
  /** Maximum bytes of disk for reading the file. */
  scratchBytes: number;
  watcher?: Watcher;
}

/**
 * Opens a file and reads it to its end. Its digest identifies the import. A file that is damaged or not a
 * text is rejected before any of its rows has an effect.
 *
 * @param name name of the file as the user entered it
 * @throws {ImportError}
 */
export async function openInput(
  name: string,
  { path = name, scratchBytes, watcher = unwatched }: Opening,
): Promise<Input> {
  const handle = await openFile(name, path);
  let parquet: ParquetLines | undefined;
  async function close(): Promise<void> {
    await handle.close();
    await parquet?.close();
  }
  try {
    const { size, mtimeMs } = await handle.stat();
    const kind = kindOf(await readAt(handle, 0, START_BYTES), name);
    const entries = kind === 'zip' ? await listZip(handle, size) : [];
    const document = documentOf(entries.map((entry) => entry.name));
    if (document) throw new ImportError(`${name} is ${document}`);
    if (kind === 'zip' && entries.length === 0) throw new ImportError(`${name} contains no file`);
    const source: Source = { handle, name, size, kind, entries };
    const { digest, bytes } = await survey(source, watcher);
    const maxBytes = Math.max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * size);
    const rowBounds = { maxBytes, maxRowBytes: MAX_ROW_BYTES, longLine: longLine(), name, watcher };
    if (kind === 'parquet') parquet = await readParquet(path, { ...rowBounds, scratchBytes });
    const table = kind === 'avro' ? await openAvro(handle, { ...rowBounds, size }) : parquet;
    const length = table?.rows ?? bytes;
    let read = 0;
    const count = (more: number) => {
      read += more;
    };
    const tablePart = async function* (lines: AvroLines['lines']): AsyncGenerator<Part> {
      yield { name, bytes: () => namingFile(lines(count), name) };
    };
    return {
      ...{ name, path, kind, digest, length, innerName: entries[0]?.name ?? name },
      parts: () => (table ? tablePart(table.lines) : counted(partsOf(source), count)),
      read: () => Math.min(length, read),
      async requireUnchanged() {
        const now = await handle.stat();
        if (now.size !== size || now.mtimeMs !== mtimeMs)
          throw new ImportError(
            `${name} changed while it was being read; run the command again when the file no longer changes`,
          );
      },
      close,
    };
  } catch (error) {
    await close();
    throw nameFile(error, name);
  }
}

/** Adds the name of the file to errors that a user can fix. */
function nameFile(error: unknown, name: string): unknown {
  if (error instanceof BrokenZip || error instanceof BrokenZstd || error instanceof BrokenAvro)
    return new ImportError(`${name}: ${error.message}`, { cause: error });
  return error instanceof SourceError ? new ImportError(error.message, { cause: error }) : error;
}

async function* namingFile<T>(chunks: AsyncIterable<T>, name: string): AsyncGenerator<T> {
  try {
    yield* chunks;
  } catch (error) {
    throw nameFile(error, name);
  }
}

async function readParquet(path: string, options: ParquetOptions): Promise<ParquetLines> {
  // The Parquet reader is large and rarely needed.
  const { openParquet } = await import('../integrations/files/parquet-lines.ts');
  return openParquet(path, options);
}

async function openFile(name: string, path: string): Promise<FileHandle> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error) => {
    throw new ImportError(`${name} cannot be read: ${(error as NodeJS.ErrnoException).code}`, {
      cause: error,
    });
  });
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
  throw new ImportError(`${name} is not a regular file`);
}

/** Bytes from which the format of a file is detected. */
const START_BYTES = 65_536;

/** First bytes of formats that cannot be inside a compressed file. */
const GZIP = Buffer.from([0x1f, 0x8b]);
const ZIP = Buffer.from('PK\x03\x04', 'latin1');
const PARQUET = Buffer.from('PAR1');
const AVRO = Buffer.from('Obj\x01');

/** Detects the format by the first bytes, because the name of a file may be wrong. */
function kindOf(start: Buffer, name: string): Kind {
  const begins = (...bytes: number[]) => start.subarray(0, bytes.length).equals(Buffer.from(bytes));
  if (begins(0x1f, 0x8b)) return 'gzip';
  if (begins(0x28, 0xb5, 0x2f, 0xfd)) return 'zstd';
  if (begins(...PARQUET)) return 'parquet';
  if (begins(0x50, 0x4b, 3, 4) || begins(0x50, 0x4b, 5, 6)) return 'zip';
  if (begins(...AVRO)) return 'avro';
  requireText(start, name);
  return 'plain';
}

/** @throws {ImportError} if the bytes are not the beginning of a UTF-8 text */
function requireText(start: Buffer, name: string): void {
  if (start.length === 0) throw new ImportError(`${name} is empty`);
  const [first, second] = start;
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff))
    throw new ImportError(`${name} is in UTF-16; write it in UTF-8`);
  const table = start.subarray(0, 4).equals(PARQUET)
    ? 'Parquet'
    : start.subarray(0, 4).equals(AVRO)
      ? 'Avro'
      : undefined;
  const foreign = foreignFormatOf(start);
  if (foreign) throw new ImportError(`${name} is ${foreign}`);
  const isPacked = start.subarray(0, 2).equals(GZIP) || start.subarray(0, 4).equals(ZIP);
  if (isPacked)
    throw new ImportError(
      `${name} is compressed twice, or a compressed workbook; decompress it and import the file inside`,
    );
  if (table)
    throw new ImportError(`${name} is a compressed ${table} file; decompress it and import the file inside`);
  if (start.includes(0))
    throw new ImportError(`${name} is a binary file (it has zero bytes); write it as CSV or NDJSON in UTF-8`);
}

/** Reads the whole file once. For a zip archive it reads the bytes of the file first and then its entries. */
function survey(opened: Source, watcher: Watcher): Promise<{ digest: Buffer; bytes: number }> {
  const { name, size, entries } = opened;
  const total = entries.reduce((sum, { packedBytes }) => sum + packedBytes, size);
  return runStep(watcher, { name, doing: 'checking', of: 'bytes', total }, () =>
    readWhole({ ...opened, onBytes: watcher.move }),
  );
}

async function readWhole(source: Source): Promise<{ digest: Buffer; bytes: number }> {
  const hash = createHash('sha256');
  let bytes = 0;
  const isTable = source.kind === 'parquet' || source.kind === 'avro';
  const isRandomAccess = isTable || source.kind === 'zip';
  if (isRandomAccess) for await (const _ of rawBytes(source, hash));
  if (isTable) return { digest: hash.digest(), bytes };
  for await (const part of partsOf(source, isRandomAccess ? undefined : hash)) {
    let isFirst = source.kind !== 'plain';
    for await (const chunk of part.bytes()) {
      if (isFirst) requireText(chunk.subarray(0, START_BYTES), part.name);
      isFirst = false;
      bytes += chunk.length;
      if (bytes > ALWAYS_ALLOWED_BYTES && bytes > MAX_RATIO * source.size)
        throw new ImportError(
          `${part.name} decompresses to more than ${MAX_RATIO} times the ${source.size} bytes of its file, which is the limit`,
        );
    }
    if (isFirst) throw new ImportError(`${part.name} is empty`);
  }
  return { digest: hash.digest(), bytes };
}

async function* counted(parts: AsyncIterable<Part>, count: (bytes: number) => void): AsyncGenerator<Part> {
  for await (const { name, bytes } of parts) {
    yield {
      name,
      async *bytes() {
        for await (const chunk of bytes()) {
          count(chunk.length);
          yield chunk;
        }
      },
    };
  }
}
