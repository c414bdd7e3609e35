import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import path from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import {
  type DuckDbModule,
  identifier,
  importDuckDb,
  isInBrotli,
  literal,
  openDuckDb,
} from '../integrations/duckdb.ts';

/** Type of a column. `json` is a text that contains JSON. Timestamps are in UTC with microseconds. */
export type ParquetType =
  | 'uuid'
  | 'text'
  | 'json'
  | 'timestamp'
  | 'double'
  | 'bigint'
  | 'boolean'
  | { decimal: { digits: number; scale: number } };

export interface ParquetColumn {
  name: string;
  /** Member of a row that has the value; by default, the member with the name of the column. */
  member?: string;
  type: ParquetType;
}

/**
 * A row with a member per column; null and absent values are null. `uuid`, `text`, `json` and decimals are
 * texts, `timestamp` is a Date or an ISO 8601 text with its offset, and `bigint` is a bigint or an integer.
 */
export type ParquetRow = Record<string, unknown>;

/**
 * Thrown if a Parquet file cannot be written or read. The message names the file, and the row and the field
 * if one caused the error.
 */
export class ParquetError extends Error {
  override name = 'ParquetError';
}

/** @throws {ParquetError} if DuckDB is not installed */
export const loadDuckDb = (): Promise<DuckDbModule> =>
  importDuckDb((message, options) => new ParquetError(message, options));

/** A connection to a DuckDB, and its module. */
interface Connected {
  connection: DuckDBConnection;
  duckDb: DuckDbModule;
  close(): void;
}

/**
 * Opens a DuckDB that can access only one folder.
 * @param folder contains the files that are read and written, and data that exceeds the memory limit
 * @param database file in that folder for the tables; if absent, they are kept in memory
 */
export async function connectTo(folder: string, database?: string): Promise<Connected> {
  const duckDb = await loadDuckDb();
  const { connect, close } = await openDuckDb(
    duckDb,
    { path: folder, inputs: folder },
    { ...(database !== undefined && { database }) },
  );
  const connection = await connect();
  return {
    connection,
    duckDb,
    close() {
      connection.closeSync();
      close();
    },
  };
}

/**
 * @returns an error that names the file. Later paragraphs of a DuckDB message are omitted, because they
 * contain hints for the author of the statement
 */
export function toParquetError(error: unknown, file: string): unknown {
  if (error instanceof ParquetError) return error;
  // Errors of DuckDB have no class of their own. System errors have a code, and errors of an abort
  // have a name.
  if (!(error instanceof Error) || error.name !== 'Error' || 'code' in error) return error;
  return new ParquetError(`${file}: ${error.message.split('\n\n')[0]}`, { cause: error });
}

export async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}

interface ParquetContent {
  rows: number;
  /** Smallest and largest key as texts; null without rows. */
  least: string | null;
  greatest: string | null;
  /**
   * Checksum of the keys, independent of their order: the sum of the first 60 bits of the MD5 of each key, in
   * decimal digits.
   */
  checksum: string;
  /** SHA-256 of the file in hex. */
  sha256: string;
}

/**
 * Reads every page of a file to its last row.
 * @param key the column that identifies a row
 * @throws {ParquetError} if the file is damaged, is not Parquet, uses Brotli, or lacks the column
 */
export async function readBack(file: string, key: string): Promise<ParquetContent> {
  const column = identifier(key);
  // The hash over whole rows makes DuckDB decompress the pages of all columns.
  const statement = `
    select count(*)::varchar, min(${column})::varchar, max(${column})::varchar,
      coalesce(sum(('0x' || md5(${column}::varchar)[1:15])::bigint), 0)::varchar, bit_xor(hash(given))::varchar
    from read_parquet(${literal(file)}) as given`;
  for await (const [row] of readChunks(file, statement)) {
    const [rows, least, greatest, checksum] = row!;
    return {
      rows: Number(rows),
      least: least!,
      greatest: greatest!,
      checksum: checksum!,
      sha256: await sha256Of(file),
    };
  }
  throw new ParquetError(`${file}: its statistics could not be read`);
}

/**
 * Yields the rows of a file in order, in batches of at most 2,048 rows. Timestamps are ISO 8601 texts in UTC
 * with microseconds, decimals and bigints are texts, and other values are returned as they were written. A
 * missing column is an error.
 * @throws {ParquetError} like `readBack`
 */
export async function* readParquet(
  file: string,
  columns: readonly ParquetColumn[],
): AsyncGenerator<ParquetRow[]> {
  const selected = columns.map(({ name, type }) => asText(identifier(name), type));
  const statement = `select ${selected.join(', ')} from read_parquet(${literal(file)})`;
  const members = columns.map(({ name, member = name }) => member);
  let read = 0;
  for await (const chunk of readChunks(file, statement)) {
    read += chunk.length;
    yield chunk.map((cells) => Object.fromEntries(members.map((member, index) => [member, cells[index]])));
  }
  // A DuckDB stream that ends early for lack of memory looks complete, so compare the number of rows.
  for await (const [row] of readChunks(
    file,
    `select count(*)::varchar from read_parquet(${literal(file)})`,
  )) {
    if (Number(row![0]) !== read)
      throw new ParquetError(`${file}: only ${read} of ${row![0]} rows could be read`);
  }
}

function asText(column: string, type: ParquetColumn['type']): string {
  if (type === 'double' || type === 'boolean') return column;
  if (type === 'timestamp') return `strftime(${column}, '%Y-%m-%dT%H:%M:%S.%fZ')`;
  return `${column}::varchar`;
}

async function* readChunks(file: string, statement: string): AsyncGenerator<(string | null)[][]> {
  const { connection, close } = await connectTo(path.dirname(file));
  try {
    if (await isInBrotli(connection, file))
      throw new ParquetError(`${file}: it is compressed with Brotli, which is not read`);
    const result = await connection.stream(statement);
    for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
      yield chunk.getRows() as (string | null)[][];
    }
  } catch (error) {
    throw toParquetError(error, file);
  } finally {
    close();
  }
}
