import path from 'node:path';
import { type DuckDBConnection, DuckDBInstance } from '@duckdb/node-api';
import type { Scratch } from './scratch.ts';

/**
 * What DuckDB keeps in memory at most. It takes far less for rows of a few hundred bytes; but it handles 2048 rows at a
 * time, and so 200 MB for rows of 100 KB.
 */
const MEMORY = '1GiB';
/** Each has rows of its own in memory, and the lanes take what is read far more slowly than one reads. */
const THREADS = 1;

export interface DuckDb {
  connect(): Promise<DuckDBConnection>;
  close(): void;
}

/**
 * A DuckDB without a database, that reads nothing but the scratch folder: no other file, no network, no extension.
 * What is needed, Parquet and JSON, is built in.
 * @param targets files elsewhere that links in the scratch folder lead to
 */
export async function openDuckDb(scratch: Scratch, targets: readonly string[]): Promise<DuckDb> {
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  // The order counts: nothing can be set once external access is off and the configuration locked.
  for (const setting of [
    `threads = ${THREADS}`,
    `memory_limit = '${MEMORY}'`,
    `temp_directory = ${literal(path.join(scratch.path, 'spill'))}`,
    `extension_directory = ${literal(path.join(scratch.path, 'extensions'))}`,
    'autoinstall_known_extensions = false',
    'autoload_known_extensions = false',
    'allow_community_extensions = false',
    'allow_persistent_secrets = false',
    'preserve_insertion_order = false',
    "TimeZone = 'UTC'",
    `allowed_directories = [${literal(scratch.inputs)}]`,
    `allowed_paths = [${targets.map(literal).join(', ')}]`,
    'enable_external_access = false',
    'lock_configuration = true',
  ]) {
    await connection.run(`set ${setting}`);
  }
  connection.closeSync();
  return { connect: () => instance.connect(), close: () => instance.closeSync() };
}

export function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
