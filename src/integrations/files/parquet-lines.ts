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

/** A Parquet file as lines of JSON, an object for each row, in their order. */
export interface ParquetLines {
  rows: number;
  lines(onRows: (rows: number) => void): AsyncGenerator<Buffer>;
  close(): Promise<void>;
}

export interface ParquetOptions {
  /** As the person knows it. */
  name: string;
  /** Bytes of disk that reading may take. */
  scratchBytes: number;
  /** Bytes that the texts of all its rows may have. */
  maxBytes: number;
  /** Bytes of the texts of one row. */
  maxRowCharacters: number;
  /** What stands for a row that has more. */
  longLine: Buffer;
  watcher: Watcher;
}

/** Rows that DuckDB makes at a time. */
const VECTOR = 2048;

/** Bytes of texts of the rows that it makes at a time: as JSON they are several times as many. */
const MOST_VECTOR_BYTES = 67_108_864;

/** How deep the type of a column may be. */
const MOST_DEPTH = 16;

/** Rows `from` to `to`, without the last. */
interface Window {
  from: number;
  to: number;
}

/**
 * Opens a Parquet file, and measures its rows before one of them is made: a dictionary makes gigabytes of a few bytes.
 * @throws {SourceError} when it is no Parquet file, or one that is not read
 */
export async function openParquet(
  file: string,
  { name, scratchBytes, maxBytes, maxRowCharacters, longLine, watcher }: ParquetOptions,
): Promise<ParquetLines> {
  const module = await loadDuckDb();
  const ids = module.DuckDBTypeId;
  const real = await realpath(file);
  const inputs = [{ name, path: real }];
  const scratch = await createScratch(scratchBytes);
  // The file is read where it lies: its folder is all that a statement may reach.
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
    const columns = described.columnTypes().map((type, place) => ({ column: names[place]!, type }));
    const size = total(
      columns.map(({ column, type }) =>
        named(column, sizeOf(`one.${identifier(column)}`, { type, name, depth: 0, ids })),
      ),
    );
    // Of what the file says of itself: no row is made for it.
    const [[said]] = (await connection.runAndReadAll(`select count(*) from ${from}`)).getRows() as [[bigint]];
    const step = { name, doing: 'checking', of: 'rows', total: Number(said) } as const;
    const { rows, windows } = await runStep(watcher, step, () =>
      survey(connection, `select (${size})::bigint from ${from} as one`),
    );
    connection.closeSync();
    return { rows, lines: (onRows) => lines(windows, size, onRows), close };
  } catch (error) {
    await close();
    throw toSourceError(error, inputs);
  }

  /** The rows, and the windows in which they are read: one, unless so many large ones stand together. */
  async function survey(connection: DuckDBConnection, statement: string) {
    const windows: Window[] = [];
    let [rows, all, ofWindow, ofVector, isLarge] = [0, 0, 0, 0, false];
    let first = 0;
    const result = await connection.stream(statement);
    for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
      for (const value of chunk.getColumnValues(0)) {
        const bytes = Number(value);
        all += bytes;
        const made = bytes > maxRowCharacters ? 0 : bytes;
        if (ofWindow + made > MOST_VECTOR_BYTES) {
          windows.push({ from: first, to: rows });
          [first, ofWindow] = [rows, 0];
        }
        ofWindow += made;
        // Vectors need not begin where these do: of two that follow each other one is within them.
        ofVector = rows % VECTOR === 0 ? made : ofVector + made;
        isLarge ||= ofVector > MOST_VECTOR_BYTES / 2;
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
    const json = `select case when ${size} <= ${maxRowCharacters} then to_json(one)::varchar end`;
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

/** Lines that follow one another as one text; null: one that was not made. */
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
  /** Of the file. */
  name: string;
  depth: number;
  ids: DuckDbModule['DuckDBTypeId'];
}

/** Bytes of the texts in a value, as an expression that makes none of them. */
function sizeOf(value: string, { type, name, depth, ids }: Typed): string {
  if (depth > MOST_DEPTH)
    throw new SourceError('config', `${name}: it has a column nested deeper than ${MOST_DEPTH}`);
  const within = (inner: string, of: DuckDBType) => sizeOf(inner, { type: of, name, depth: depth + 1, ids });
  const sum = (list: string, of: DuckDBType) => {
    const item = `x${depth}`;
    return `(coalesce(list_sum(list_transform(${list}, lambda ${item}: ${within(item, of)})), 0) + 8)`;
  };
  switch (type.typeId) {
    case ids.VARCHAR:
      return `coalesce(strlen(${value}), 0)`;
    case ids.BLOB:
      return `coalesce(octet_length(${value}), 0)`;
    case ids.STRUCT: {
      const { entryNames, entryTypes } = type as DuckDBStructType;
      return total(
        entryNames.map((entry, place) =>
          named(entry, within(`struct_extract(${value}, ${literal(entry)})`, entryTypes[place]!)),
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

/** A member has its name in each row. */
const named = (member: string, size: string) => `(${size} + ${Buffer.byteLength(member) + 4})`;

/** A sum that is not nested deeply, however many are summed up: DuckDB refuses expressions that are. */
function total(sizes: readonly string[]): string {
  if (sizes.length <= 1) return sizes[0] ?? '0';
  const half = sizes.length >> 1;
  return `(${total(sizes.slice(0, half))} + ${total(sizes.slice(half))})`;
}
