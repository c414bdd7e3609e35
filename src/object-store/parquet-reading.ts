import path from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import { identifier, literal, openDuckDb, ParquetError, toParquetError } from './duckdb.ts';
import { type ParquetColumn, type ParquetRow, sha256Of } from './parquet.ts';

export interface ParquetContent {
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
  let read = 0;
  for await (const chunk of readChunks(file, statement)) {
    read += chunk.length;
    yield chunk.map((cells) => Object.fromEntries(columns.map(({ name }, index) => [name, cells[index]])));
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
  const { connection, close } = await openDuckDb({ folder: path.dirname(file) });
  try {
    await refuseBrotli(connection, file);
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

/** Its decoder writes where it must not (CVE-2026-111497). The footer names the codec, and is not packed. */
async function refuseBrotli(connection: DuckDBConnection, file: string): Promise<void> {
  const packed = await connection.runAndReadAll(
    `select 1 from parquet_metadata(${literal(file)}) where compression = 'BROTLI' limit 1`,
  );
  if (packed.currentRowCount > 0)
    throw new ParquetError(`${file}: it is compressed with Brotli, which is not read`);
}
