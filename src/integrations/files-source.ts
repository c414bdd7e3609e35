import { setImmediate as nextTurn } from 'node:timers/promises';
import type { DuckDBDataChunk } from '@duckdb/node-api';
import { assertCanonical, charactersOf, toRow } from './columns.ts';
import { openDuckDb } from './duckdb.ts';
import { readers } from './files/formats.ts';
import { copyFiles, type InputFile } from './files/input.ts';
import {
  loadDuckDb,
  nameAll,
  rowsStatement,
  surveyRows,
  toSourceError,
  type ValueColumn,
  withNames,
} from './files/part.ts';
import { createScratch, type Scratch } from './files/scratch.ts';
import {
  type FileFormat,
  type FolderDefinition,
  type ReadOptions,
  type Source,
  type SourceColumn,
  SourceError,
  type SourceOptions,
  type SourceRow,
} from './source.ts';

/** Maximum characters of a batch with several rows. */
const BATCH_CHARACTERS = 4_194_304;

/** Files of a source, each of which is copied into the scratch folder once. */
export interface Files {
  /** Returns enough files to read the columns. */
  forColumns(): Promise<InputFile[]>;
  all(signal: AbortSignal): Promise<InputFile[]>;
  /** Releases the connection after the last file was read. */
  release(): void;
}

/**
 * Opens all files of a format in a folder, or one file.
 * @throws {SourceError} `config` if there is no file, or one cannot be read
 */
export async function openFolder(definition: FolderDefinition, options: SourceOptions): Promise<Source> {
  return openFiles(definition.format, options, async (scratch) => {
    const files = await copyFiles(definition, scratch, options.signal);
    return { forColumns: async () => files, all: async () => files, release() {} };
  });
}

/**
 * Opens files with DuckDB, which sorts their rows by UPDATED_AT as one table. A line that cannot be parsed
 * becomes an unreadable row.
 * @param fill puts the files into the scratch folder, which is removed on `close`
 */
export async function openFiles(
  format: FileFormat,
  { serviceIdField, scratchBytes }: SourceOptions,
  fill: (scratch: Scratch) => Promise<Files>,
): Promise<Source> {
  const reader = readers[format];
  // Load DuckDB first, so that a missing package is reported before files are copied.
  const module = await loadDuckDb();
  const scratch = await createScratch(scratchBytes);
  async function opened() {
    const files = await fill(scratch);
    return { files, duckDb: await openDuckDb(module, scratch) };
  }
  const { files, duckDb } = await opened().catch(async (error) => {
    await scratch.remove();
    throw error;
  });

  let prepared: Promise<readonly InputFile[]> | undefined;
  async function prepare(signal: AbortSignal): Promise<readonly InputFile[]> {
    const all = await files.all(signal);
    return reader.prepare ? reader.prepare(all, scratch, signal) : all;
  }

  async function describe(): Promise<SourceColumn[]> {
    const inputs = await (prepared ?? files.forColumns());
    const connection = await duckDb.connect();
    try {
      const columns = new Map<string, SourceColumn>();
      for (const column of (await reader.parts(connection, inputs, serviceIdField)).flatMap(
        (part) => part.columns,
      )) {
        const name = column.name.toLowerCase();
        if (!columns.has(name)) columns.set(name, column);
      }
      return [...columns.values()];
    } catch (error) {
      throw toSourceError(error, inputs);
    } finally {
      connection.closeSync();
    }
  }

  async function* rowsSince(since: string | undefined, read: ReadOptions): AsyncGenerator<SourceRow[]> {
    if (since !== undefined) assertCanonical(since);
    read.signal.throwIfAborted();
    prepared ??= prepare(read.signal).catch((error) => {
      prepared = undefined;
      throw error;
    });
    const inputs = await prepared;
    const connection = await duckDb.connect();
    const stop = () => connection.interrupt();
    read.signal.addEventListener('abort', stop, { once: true });
    try {
      const parts = await reader.parts(connection, inputs, serviceIdField);
      if (parts.length === 0) return;
      const columns = [...new Set(parts.flatMap(({ values }) => [...values.keys()]))];
      const survey = await surveyRows(connection, { parts, columns }, since);
      for await (const rows of reader.broken(connection, inputs)) yield* slices(rows, read);
      let readRows = 0;
      for (const window of survey.windows) {
        const result = await connection.stream(rowsStatement(parts, columns, window));
        for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
          readRows += chunk.rowCount;
          yield* slices(rowsOf(chunk, columns, inputs), read);
          // Two chunks may follow each other without a wait, so let other work run.
          await nextTurn();
        }
      }
      requireAll(readRows, survey.rows, inputs);
    } catch (error) {
      read.signal.throwIfAborted();
      throw toSourceError(error, inputs);
    } finally {
      read.signal.removeEventListener('abort', stop);
      connection.closeSync();
    }
  }

  async function close(): Promise<void> {
    files.release();
    duckDb.close();
    await scratch.remove();
  }
  return { describe, rowsSince, close };
}

/** Yields the rows of a chunk one at a time: together they may exceed the memory. */
function* rowsOf(
  chunk: DuckDBDataChunk,
  columns: readonly ValueColumn[],
  inputs: readonly InputFile[],
): Generator<SourceRow> {
  for (let index = 0; index < chunk.rowCount; index += 1) {
    const cells = chunk.getRowValues(index) as (string | null)[];
    const [, shown] = cells;
    yield toRow(shown ? cells.with(1, withNames(shown, inputs)) : cells, columns);
  }
}

/** Groups rows into batches of a maximum number of rows and characters. */
async function* slices(
  rows: Iterable<SourceRow>,
  { batch, signal }: ReadOptions,
): AsyncGenerator<SourceRow[]> {
  let slice: SourceRow[] = [];
  let characters = 0;
  for (const row of rows) {
    slice.push(row);
    characters += charactersOf(row);
    if (slice.length < batch && characters < BATCH_CHARACTERS) continue;
    signal.throwIfAborted();
    yield slice;
    if (characters >= BATCH_CHARACTERS) await nextTurn();
    slice = [];
    characters = 0;
  }
  if (slice.length > 0) yield slice;
}

/** Checks that all rows were read: a DuckDB stream that ends early for lack of memory looks complete. */
function requireAll(given: number, counted: number, inputs: readonly InputFile[]): void {
  if (given >= counted) return;
  throw new SourceError('failed', `${nameAll(inputs)}: only ${given} of ${counted} rows could be read`);
}
