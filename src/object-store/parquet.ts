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

/** `json` is a text that holds JSON; times are kept to the microsecond, in UTC. */
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
  /** The member of a row that has its value; absent: the one of its name. */
  member?: string;
  type: ParquetType;
}

/**
 * A row by the members that its columns have; null or absent is null. `uuid`, `text`, `json` and decimals are texts, `timestamp`
 * a Date or an ISO 8601 text with its offset, `bigint` a bigint or a whole number.
 */
export type ParquetRow = Record<string, unknown>;

/** A Parquet file that cannot be written or read. The message names the file, and the row and the field where it is one. */
export class ParquetError extends Error {
  override name = 'ParquetError';
}

/** @throws {ParquetError} when it is not there */
export const loadDuckDb = (): Promise<DuckDbModule> =>
  importDuckDb((message, options) => new ParquetError(message, options));

/** A connection to a DuckDB, and what it is of. */
interface Connected {
  connection: DuckDBConnection;
  duckDb: DuckDbModule;
  close(): void;
}

/**
 * A DuckDB that reaches one folder.
 * @param folder holds the files that are read and written, and what does not fit into the memory
 * @param database a file of that folder in which tables lie; absent: in memory
 */
export async function connectIn(folder: string, database?: string): Promise<Connected> {
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

/** @returns what names the file; behind the first paragraph, DuckDB advises whoever writes the statement */
export function toParquetError(error: unknown, file: string): unknown {
  if (error instanceof ParquetError) return error;
  // Errors of DuckDB carry no class of their own; those of the system a code, those of an abort a name.
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
  /** Of the key, as texts; null without rows. */
  least: string | null;
  greatest: string | null;
  /** Over the keys, whatever their order: the sum of the first 60 bits of each key's MD5, in decimal digits. */
  checksum: string;
  /** SHA-256 of the file, in hexadecimal digits. */
  sha256: string;
}

/**
 * Reads a file to its last row, every page of it.
 * @param key the column that tells the rows apart
 * @throws {ParquetError} when it is broken, no Parquet, in Brotli, or lacks the column
 */
export async function readBack(file: string, key: string): Promise<ParquetContent> {
  const column = identifier(key);
  // Over whole rows as well: a page of a column that nothing asks for is not unpacked.
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
  throw new ParquetError(`${file}: no answer`);
}

/**
 * The rows of a file, in their order; those of one piece are in memory at once, at most 2048. Times come as ISO 8601 texts
 * in UTC with microseconds, decimals and bigints as texts, all else as it was written. A column that the file lacks is an error.
 * @throws {ParquetError} as `readBack` does
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
  // A stream that ends early, for want of memory, looks like one that ends.
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
  const { connection, close } = await connectIn(path.dirname(file));
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
