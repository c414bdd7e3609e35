import path from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import { type DuckDbModule, importDuckDb } from '../integrations/duckdb.ts';

/**
 * What DuckDB keeps in memory at most; the rest lies on the disk, beside the file. It handles 2048 rows at a time, which
 * have to fit: 200 MB for rows of 100 KB.
 */
const MEMORY = '1GiB';

/** A Parquet file that cannot be written or read. The message names the file, and the row and the field where it is one. */
export class ParquetError extends Error {
  override name = 'ParquetError';
}

/** @throws {ParquetError} when it is not there */
export const loadDuckDb = (): Promise<DuckDbModule> =>
  importDuckDb((message, options) => new ParquetError(message, options));

export interface DuckDb {
  connection: DuckDBConnection;
  duckDb: DuckDbModule;
  close(): void;
}

/**
 * A DuckDB that reaches one folder, loads no extension, and takes no more memory than it is allowed.
 * @param folder holds the files that are read and written, and what does not fit into the memory
 * @param database a file of that folder in which tables lie; absent: in memory
 */
export async function openDuckDb({
  folder,
  database = ':memory:',
}: {
  folder: string;
  database?: string;
}): Promise<DuckDb> {
  const duckDb = await loadDuckDb();
  const instance = await duckDb.DuckDBInstance.create(database);
  const connection = await instance.connect();
  function close() {
    connection.closeSync();
    instance.closeSync();
  }
  try {
    // The order counts: nothing can be set once external access is off and the configuration locked.
    for (const setting of [
      'threads = 1',
      `memory_limit = '${MEMORY}'`,
      `temp_directory = ${literal(path.join(folder, 'spill'))}`,
      `extension_directory = ${literal(path.join(folder, 'extensions'))}`,
      'autoinstall_known_extensions = false',
      'autoload_known_extensions = false',
      'allow_community_extensions = false',
      'allow_persistent_secrets = false',
      // With one thread rows keep their order all the same; row groups may then be bounded by bytes.
      'preserve_insertion_order = false',
      "TimeZone = 'UTC'",
      `allowed_directories = [${literal(folder)}]`,
      'enable_external_access = false',
      'lock_configuration = true',
    ]) {
      await connection.run(`set ${setting}`);
    }
  } catch (error) {
    close();
    throw error;
  }
  return { connection, duckDb, close };
}

export function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

export function identifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** @returns what names the file; behind the first paragraph, DuckDB advises whoever writes the statement */
export function toParquetError(error: unknown, file: string): unknown {
  if (error instanceof ParquetError) return error;
  // Errors of DuckDB carry no class of their own; those of the system a code, those of an abort a name.
  if (!(error instanceof Error) || error.name !== 'Error' || 'code' in error) return error;
  return new ParquetError(`${file}: ${error.message.split('\n\n')[0]}`, { cause: error });
}
