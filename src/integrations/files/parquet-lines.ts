import { realpath } from 'node:fs/promises';
import path from 'node:path';
import type {
  DuckDBArrayType,
  DuckDBConnection,
  DuckDBListType,
  DuckDBMapType,
  DuckDBStructType,
  DuckDBType,
} from '@duckdb/node-api';
import { runStep, type Watcher } from '../../platform/steps.ts';
import { type DuckDbModule, identifier, literal, openDuckDb } from '../duckdb.ts';
import { SourceError } from '../source.ts';
import { refuseBrotli } from './formats.ts';
import { loadDuckDb, toSourceError } from './part.ts';
import { createScratch } from './scratch.ts';

/** A Parquet file as lines of JSON, one object per row, in the order of the file. */
export interface ParquetLines {
  rows: number;
  lines(onRows: (rows: number) => void): AsyncGenerator<Buffer>;
  close(): Promise<void>;
}

export interface ParquetOptions {
  /** Name of the file as the user entered it. */
  name: string;
  /** Maximum bytes of disk for reading the file. */
  scratchBytes: number;
  /** Maximum bytes of the texts of all rows. */
  maxBytes: number;
  /** Maximum bytes of the texts of a row. */
  maxRowBytes: number;
  /** The line that replaces a row that is longer. */
  longLine: Buffer;
  watcher: Watcher;
}

/** Number of rows that DuckDB processes at a time. */
const VECTOR = 2048;

/**
 * Maximum bytes of texts in the rows that are processed at a time. As JSON they take several times as much.
 */
const MAX_VECTOR_BYTES = 67_108_864;

/** Maximum depth of the type of a column. */
const MAX_DEPTH = 16;

/** Rows from `from` up to but excluding `to`. */
interface Window {
  from: number;
  to: number;
}

/**
 * Opens a Parquet file and measures its rows before any of them is read, because a dictionary expands a few
 * bytes to gigabytes.
 * @throws {SourceError} if it is not a Parquet file, or is not supported
 */
export async function openParquet(
  file: string,
  { name, scratchBytes, maxBytes, maxRowBytes, longLine, watcher }: ParquetOptions,
): Promise<ParquetLines> {
  const module = await loadDuckDb();
  const ids = module.DuckDBTypeId;
  const real = await realpath(file);
  const inputs = [{ name, path: real }];
  const scratch = await createScratch(scratchBytes);
  // The file is read in place, so statements may access its folder only.
  const duckDb = await openDuckDb(module, { ...scratch, inputs: path.dirname(real) }, { keepsOrder: true });
  const from = `read_parquet(${literal(real)}, binary_as_string = true)`;
  const numbered = `read_parquet(${literal(real)}, binary_as_string = true, file_row_number = true)`;
  async function close(): Promise<void> {
    duckDb.close();
    await scratch.remove();
  }
  try {
    const connection = await duckDb.connect();
    await refuseBrotli(connection, inputs[0]!);
    const described = await connection.runAndReadAll(`select * from ${from} limit 0`);
    const names = described.columnNames();
    const columns = described.columnTypes().map((type, index) => ({ column: names[index]!, type }));
    const size = total(
      columns.map(({ column, type }) =>
        named(column, sizeOf(`one.${identifier(column)}`, { type, name, depth: 0, ids })),
      ),
    );
    // The count comes from the metadata of the file, without reading rows.
    const [[rowCount]] = (await connection.runAndReadAll(`select count(*) from ${from}`)).getRows() as [
      [bigint],
    ];
    const step = { name, doing: 'checking', of: 'rows', total: Number(rowCount) } as const;
    const { rows, windows } = await runStep(watcher, step, () =>
      survey(connection, `select (${size})::bigint from ${from} as one`),
    );
    connection.closeSync();
    return { rows, lines: (onRows) => lines(windows, size, onRows), close };
  } catch (error) {
    await close();
    throw toSourceError(error, inputs);
  }

  /**
   * Counts the rows and divides them into windows. Without many large rows next to each other, they are read
   * without windows.
   */
  async function survey(connection: DuckDBConnection, statement: string) {
    const windows: Window[] = [];
    let [rows, all, ofWindow, ofVector, isLarge] = [0, 0, 0, 0, false];
    let first = 0;
    const result = await connection.stream(statement);
    for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
      for (const value of chunk.getColumnValues(0)) {
        const bytes = Number(value);
        all += bytes;
        const readBytes = bytes > maxRowBytes ? 0 : bytes;
        if (ofWindow + readBytes > MAX_VECTOR_BYTES) {
          windows.push({ from: first, to: rows });
          [first, ofWindow] = [rows, 0];
        }
        ofWindow += readBytes;
        // DuckDB's vectors may begin at other rows than counted here. Half of the limit per counted vector
        // ensures that a vector across two of them stays below the limit.
        ofVector = rows % VECTOR === 0 ? readBytes : ofVector + readBytes;
        isLarge ||= ofVector > MAX_VECTOR_BYTES / 2;
        rows += 1;
      }
      watcher.move(chunk.rowCount);
      if (all > maxBytes)
        throw new SourceError(
          'config',
          `${name} was not read: its rows have more than ${maxBytes} bytes after decompression, which is the limit`,
        );
    }
    windows.push({ from: first, to: rows });
    return { rows, windows: isLarge ? windows : undefined };
  }

  async function* lines(
    windows: Window[] | undefined,
    size: string,
    onRows: (rows: number) => void,
  ): AsyncGenerator<Buffer> {
    const connection = await duckDb.connect();
    const json = `select case when ${size} <= ${maxRowBytes} then to_json(one)::varchar end`;
    const statements = windows?.map(
      (window) =>
        `${json} from (select * exclude (file_row_number) from ${numbered}
         where file_row_number >= ${window.from} and file_row_number < ${window.to}) as one`,
    );
    try {
      for (const statement of statements ?? [`${json} from ${from} as one`]) {
        const result = await connection.stream(statement);
        for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
          const texts = chunk.getColumnValues(0) as (string | null)[];
          onRows(texts.length);
          for (const text of joined(texts)) yield text === null ? longLine : Buffer.from(text);
        }
      }
    } catch (error) {
      throw toSourceError(error, inputs);
    } finally {
      connection.closeSync();
    }
  }
}

/** Joins consecutive lines to larger texts. A row that is too long is null. */
function* joined(texts: readonly (string | null)[]): Generator<string | null> {
  let held = '';
  for (const text of texts) {
    if (text !== null) {
      held += `${text}\n`;
      if (held.length < 1_048_576) continue;
    }
    if (held !== '') yield held;
    held = '';
    if (text === null) yield null;
  }
  if (held !== '') yield held;
}

interface Typed {
  type: DuckDBType;
  /** Name of the file. */
  name: string;
  depth: number;
  ids: DuckDbModule['DuckDBTypeId'];
}

/** Returns an expression for the bytes of the texts in a value that does not create the texts. */
function sizeOf(value: string, { type, name, depth, ids }: Typed): string {
  if (depth > MAX_DEPTH)
    throw new SourceError('config', `${name}: it has a column nested deeper than ${MAX_DEPTH}`);
  const nestedSize = (inner: string, of: DuckDBType) =>
    sizeOf(inner, { type: of, name, depth: depth + 1, ids });
  const sum = (list: string, of: DuckDBType) => {
    const item = `x${depth}`;
    return `(coalesce(list_sum(list_transform(${list}, lambda ${item}: ${nestedSize(item, of)})), 0) + 8)`;
  };
  switch (type.typeId) {
    case ids.VARCHAR:
      return `coalesce(strlen(${value}), 0)`;
    case ids.BLOB:
      return `coalesce(octet_length(${value}), 0)`;
    case ids.STRUCT: {
      const { entryNames, entryTypes } = type as DuckDBStructType;
      return total(
        entryNames.map((entry, index) =>
          named(entry, nestedSize(`struct_extract(${value}, ${literal(entry)})`, entryTypes[index]!)),
        ),
      );
    }
    case ids.LIST:
    case ids.ARRAY:
      return sum(value, (type as DuckDBListType | DuckDBArrayType).valueType);
    case ids.MAP: {
      const { keyType, valueType } = type as DuckDBMapType;
      return `(${sum(`map_keys(${value})`, keyType)} + ${sum(`map_values(${value})`, valueType)})`;
    }
    default:
      return '8';
  }
}

/** Adds the bytes of the name of a member, which is repeated in each row. */
const named = (member: string, size: string) => `(${size} + ${Buffer.byteLength(member) + 4})`;

/**
 * Returns a sum with little nesting for any number of terms, because DuckDB refuses deeply nested
 * expressions.
 */
function total(sizes: readonly string[]): string {
  if (sizes.length <= 1) return sizes[0] ?? '0';
  const half = sizes.length >> 1;
  return `(${total(sizes.slice(0, half))} + ${total(sizes.slice(half))})`;
}
