import { createReadStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { loadDuckDb } from '../object-store/duckdb.ts';
import type { ObjectStore, Written } from '../object-store/object-store.ts';
import { type ParquetColumn, ParquetError, type ParquetRow, writeParquet } from '../object-store/parquet.ts';
import { scratchFolders } from '../platform/scratch.ts';
import type { Json } from '../profile/json.ts';
import { gzipped } from './packed.ts';
import type { Format } from './progress.ts';
import type { ExportedRow } from './source.ts';

const scratch = scratchFolders('export');

export interface FileOptions {
  store: ObjectStore;
  key: string;
  format: Format;
  columns: readonly ParquetColumn[];
  signal: AbortSignal;
  /** Hears how many characters a row has. */
  onRow(characters: number): void;
}

/**
 * What this machine lacks is said before anything is read.
 * @throws {ParquetError} when DuckDB is not there
 */
export async function prepare(format: Format): Promise<void> {
  if (format !== 'parquet') return;
  await loadDuckDb();
  await scratch.tidy();
}

/**
 * Writes rows as one file, in their order; it is there when the promise resolves, and never in part.
 * @throws {ObjectStoreError}
 * @throws {ParquetError} that names the file, and row and field where it is one
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

/** Bytes that are written at once. */
const PIECE = 65_536;

async function* bytesOf(lines: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  let piece = '';
  for await (const line of lines) {
    piece += line;
    if (piece.length < PIECE) continue;
    yield Buffer.from(piece);
    piece = '';
  }
  if (piece !== '') yield Buffer.from(piece);
}

/** DuckDB writes to a disk: what becomes of it there goes on to where it is wanted. */
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
    return await store.put(key, createReadStream(file), { signal });
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
