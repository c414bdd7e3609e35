import { toRow } from './columns.ts';
import type { FileFormat, FolderDefinition } from './definition.ts';
import { csv } from './files/csv.ts';
import { openDuckDb } from './files/duckdb.ts';
import { toSourceError, withNames } from './files/errors.ts';
import { type InputFile, linkFiles } from './files/input-files.ts';
import { ndjson } from './files/ndjson.ts';
import { parquet } from './files/parquet.ts';
import { type FormatReader, rowsStatement } from './files/part.ts';
import { createScratch, type Scratch } from './files/scratch.ts';
import type { ReadOptions, Source, SourceColumn, SourceRow } from './source.ts';
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
    const inputs = await files.all(read.signal);
    const connection = await duckDb.connect();
    const stop = () => connection.interrupt();
    read.signal.addEventListener('abort', stop, { once: true });
    try {
      const parts = await reader.parts(connection, inputs, serviceIdField);
      if (parts.length === 0) return;
      const columns = [...new Set(parts.flatMap(({ values }) => [...values.keys()]))];
      const result = await connection.stream(rowsStatement(parts, columns, since));
      for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
        const rows = (chunk.getRows() as (string | null)[][]).map(([updatedAt, shown, ...values]) =>
          toRow(updatedAt!, shown ? withNames(shown, inputs) : null, columns, values),
        );
        yield* slices(rows, read);
      }
      for await (const rows of reader.broken(connection, inputs, read.signal)) yield* slices(rows, read);
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
