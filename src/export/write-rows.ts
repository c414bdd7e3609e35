import { rm } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { ZipFile } from 'yazl';
import type { ObjectStore, Written } from '../object-store/object-store.ts';
import { loadDuckDb, type ParquetColumn, ParquetError, type ParquetRow } from '../object-store/parquet.ts';
import { writeParquet } from '../object-store/write-parquet.ts';
import { readChunks, scratchFolders } from '../platform/files.ts';
import type { Json } from '../profile/json.ts';
import type { Format } from './progress.ts';
import type { ExportedRow } from './source.ts';

const scratch = scratchFolders('export');

interface FileOptions {
  store: ObjectStore;
  key: string;
  format: Format;
  columns: readonly ParquetColumn[];
  signal: AbortSignal;
  /** Called with the number of characters of each row. */
  onRow(characters: number): void;
}

/**
 * Checks before any row is read that this machine can write the format.
 * @throws {ParquetError} if DuckDB is not installed
 */
export async function prepare(format: Format): Promise<void> {
  if (format !== 'parquet') return;
  await loadDuckDb();
  await scratch.tidy();
}

/**
 * Writes rows as one file in their order. The file appears when it is complete.
 * @throws {ObjectStoreError}
 * @throws {ParquetError} naming the file, and the row and field if one caused the error
 */
export function writeRows(rows: AsyncIterable<ExportedRow>, options: FileOptions): Promise<Written> {
  const { store, key, format, signal, onRow } = options;
  if (format === 'parquet') return writeTable(rows, options);
  async function* lines(): AsyncGenerator<string> {
    for await (const row of rows) {
      const line = `${JSON.stringify(row)}\n`;
      onRow(line.length);
      yield line;
    }
  }
  return store.put(key, format === 'ndjson' ? bytesOf(lines()) : gzipped(lines()), { signal });
}

/** Characters that are buffered for one write. */
const BUFFER_CHARACTERS = 65_536;

async function* bytesOf(lines: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  let buffered = '';
  for await (const line of lines) {
    buffered += line;
    if (buffered.length < BUFFER_CHARACTERS) continue;
    yield Buffer.from(buffered);
    buffered = '';
  }
  if (buffered !== '') yield Buffer.from(buffered);
}

/**
 * Writes a Parquet file. DuckDB writes only to a local disk, so the file is written there and then copied to
 * its location.
 */
async function writeTable(
  rows: AsyncIterable<ExportedRow>,
  { store, key, columns, signal, onRow }: FileOptions,
): Promise<Written> {
  const folder = await scratch.make();
  const file = path.join(folder, 'rows.parquet');
  async function* cells(): AsyncGenerator<ParquetRow> {
    for await (const row of rows) yield cellsOf(row, columns, onRow);
  }
  try {
    await writeParquet(cells(), { file, columns, signal });
    return await store.put(key, readChunks(file), { signal });
  } catch (error) {
    if (!(error instanceof ParquetError)) throw error;
    const where = `${store.where.replace(/\/$/, '')}/${key}`;
    throw new ParquetError(`${where}: ${error.message.replace(`${file}: `, '')}`, { cause: error });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function cellsOf(
  row: ExportedRow,
  columns: readonly ParquetColumn[],
  onRow: (characters: number) => void,
): ParquetRow {
  const cells: ParquetRow = {};
  const alias = row.user_alias as Record<string, Json> | undefined;
  let characters = 0;
  for (const { name, type } of columns) {
    const value = row[name] ?? alias?.[name] ?? null;
    cells[name] = type === 'json' && value !== null ? JSON.stringify(value) : value;
    const cell = cells[name];
    characters += typeof cell === 'string' ? cell.length : 8;
  }
  onRow(characters);
  return cells;
}

/** A file whose lines are created while it is read. */
export interface LinesFile {
  name: string;
  lines: AsyncIterable<string>;
}

/**
 * Creates a ZIP archive from files that are read one after the other, without buffering them. If a file
 * fails, the archive fails with the same error.
 */
export async function* zipped(files: AsyncIterable<LinesFile>): AsyncGenerator<Uint8Array> {
  const zip = new ZipFile();
  const out = zip.outputStream as Readable;
  let entry: Readable | undefined;
  zip.on('error', (error: Error) => out.destroy(error));

  async function add(): Promise<void> {
    for await (const { name, lines } of files) {
      if (out.destroyed) return;
      entry = Readable.from(lines, { objectMode: false });
      zip.addReadStream(entry, name, { mode: 0o100600 });
      await finished(entry, { writable: false });
    }
    zip.end();
  }

  const adding = add().catch((error: Error) => void out.destroy(error));
  try {
    yield* out as AsyncIterable<Uint8Array>;
  } finally {
    // If the caller stops reading, the lines must end before their database connection is released.
    out.destroy();
    entry?.destroy();
    await adding;
  }
}

/** Compresses a file of lines with gzip. */
export async function* gzipped(lines: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  const gzip = createGzip();
  const source = Readable.from(lines, { objectMode: false });
  const feeding = pipeline(source, gzip).catch(() => {});
  try {
    yield* gzip as AsyncIterable<Uint8Array>;
  } finally {
    gzip.destroy();
    source.destroy();
    await feeding;
  }
}
