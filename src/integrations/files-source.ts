import { toRow } from './columns.ts';
import type { FileFormat, FolderDefinition } from './definition.ts';
import { csv } from './files/csv.ts';
import { openDuckDb } from './files/duckdb.ts';
import { nameAll, toSourceError, withNames } from './files/errors.ts';
import { type InputFile, linkFiles } from './files/input-files.ts';
import { ndjson } from './files/ndjson.ts';
import { parquet } from './files/parquet.ts';
import type { FormatReader } from './files/part.ts';
import { createScratch, type Scratch } from './files/scratch.ts';
import { rowsStatement, surveyRows } from './files/windows.ts';
import { type ReadOptions, type Source, type SourceColumn, SourceError, type SourceRow } from './source.ts';
import { assertCanonical } from './times.ts';

const readers: Record<FileFormat, FormatReader> = { csv, ndjson, parquet };

/** Files that appear one after the other: those of a bucket are fetched first. */
export interface Files {
  /** Enough of them to know the columns by. */
  forColumns(): Promise<InputFile[]>;
  all(signal: AbortSignal): Promise<InputFile[]>;
  /** What links among them lead to. */
  elsewhere: string[];
  /** Nothing more is asked of them. */
  release(): void;
}

/**
 * Every file of a format in a folder, or one file.
 * @throws {SourceError} `config` when there is none, or one may not be read
 */
export async function openFolder(
  definition: FolderDefinition,
  options: { serviceIdField: string },
): Promise<Source> {
  return openFiles(definition.format, options, async (scratch) => {
    const files = await linkFiles(definition, scratch);
    const elsewhere = files.map(({ target }) => target);
    return { forColumns: async () => files, all: async () => files, elsewhere, release() {} };
  });
}

/**
 * Files through DuckDB, which sorts them by UPDATED_AT as one table. A line that is no row comes as an unreadable row.
 * @param fill puts the files into the scratch folder, which is removed on `close`
 */
export async function openFiles(
  format: FileFormat,
  { serviceIdField }: { serviceIdField: string },
  fill: (scratch: Scratch) => Promise<Files>,
): Promise<Source> {
  const reader = readers[format];
  const scratch = await createScratch();
  async function opened() {
    const files = await fill(scratch);
    return { files, duckDb: await openDuckDb(scratch, files.elsewhere) };
  }
  const { files, duckDb } = await opened().catch(async (error) => {
    await scratch.remove();
    throw error;
  });

  async function describe(): Promise<SourceColumn[]> {
    const inputs = await files.forColumns();
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
    const all = await files.all(read.signal);
    const inputs = (await reader.prepare?.(all, read.signal)) ?? all;
    const connection = await duckDb.connect();
    const stop = () => connection.interrupt();
    read.signal.addEventListener('abort', stop, { once: true });
    try {
      const parts = await reader.parts(connection, inputs, serviceIdField);
      if (parts.length === 0) return;
      const columns = [...new Set(parts.flatMap(({ values }) => [...values.keys()]))];
      const survey = await surveyRows(connection, parts, columns, since);
      for await (const rows of reader.broken(connection, inputs)) yield* slices(rows, read);
      let given = 0;
      for (const window of survey.windows) {
        const result = await connection.stream(rowsStatement(parts, columns, window));
        for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
          const rows = (chunk.getRows() as (string | null)[][]).map(([updatedAt, shown, ...values]) =>
            toRow(updatedAt!, shown ? withNames(shown, inputs) : null, columns, values),
          );
          given += rows.length;
          yield* slices(rows, read);
        }
      }
      requireAll(given, survey.rows, inputs);
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

function* slices(rows: SourceRow[], { batch, signal }: ReadOptions): Generator<SourceRow[]> {
  for (let start = 0; start < rows.length; start += batch) {
    signal.throwIfAborted();
    yield rows.slice(start, start + batch);
  }
}

/** A stream of DuckDB's that ends early, for want of memory, looks like one that ends. */
function requireAll(given: number, counted: number, inputs: readonly InputFile[]): void {
  if (given >= counted) return;
  throw new SourceError('failed', `${nameAll(inputs)}: only ${given} of ${counted} rows could be read`);
}
