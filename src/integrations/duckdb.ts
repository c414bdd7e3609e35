import path from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import { importOptional } from '../platform/optional-package.ts';

export type DuckDbModule = typeof import('@duckdb/node-api');

const PACKAGE = {
  name: '@duckdb/node-api',
  users: 'Parquet files and syncs from files',
};

/**
 * Loads DuckDB. Most processes never need it.
 * @throws {Error} made by `toError`, if the package or its build for this machine is not installed
 */
export const importDuckDb = (
  toError: (message: string, options: ErrorOptions) => Error,
): Promise<DuckDbModule> => importOptional(PACKAGE, () => import('@duckdb/node-api'), toError);

/**
 * What DuckDB keeps in memory at most; the rest lies on the disk. It takes far less for rows of a few hundred bytes; but
 * it handles 2048 rows at a time, which have to fit: 200 MB for rows of 100 KB.
 */
const MEMORY = '1GiB';
/** Each has rows of its own in memory, and the lanes take what is read far more slowly than one reads. */
const THREADS = 1;

interface DuckDb {
  connect(): Promise<DuckDBConnection>;
  close(): void;
}

/** Where it works. */
interface Sandbox {
  /** The one folder whose files statements read and write. */
  inputs: string;
  /** What does not fit into the memory goes beneath it. */
  path: string;
  /** Bytes of that; absent: what the disk has. */
  maxBytes?: number;
}

interface OpenOptions {
  /** A file of `inputs` in which tables lie; absent: in memory. */
  database?: string;
  /** Rows come in the order of their file. With one thread they do so without it; row groups may then be bounded by bytes. */
  keepsOrder?: boolean;
}

/**
 * A DuckDB that reaches one folder: no other file, no network, no extension, and no more memory than it is allowed. What
 * is needed, Parquet and JSON, is built in.
 */
export async function openDuckDb(
  { DuckDBInstance }: DuckDbModule,
  { inputs, path: scratch, maxBytes }: Sandbox,
  { database = ':memory:', keepsOrder = false }: OpenOptions = {},
): Promise<DuckDb> {
  const instance = await DuckDBInstance.create(database);
  const connection = await instance.connect();
  try {
    // The order counts: nothing can be set once external access is off and the configuration locked.
    for (const setting of [
      `threads = ${THREADS}`,
      `memory_limit = '${MEMORY}'`,
      `temp_directory = ${literal(path.join(scratch, 'spill'))}`,
      ...(maxBytes === undefined ? [] : [`max_temp_directory_size = '${maxBytes}B'`]),
      `extension_directory = ${literal(path.join(scratch, 'extensions'))}`,
      'autoinstall_known_extensions = false',
      'autoload_known_extensions = false',
      'allow_community_extensions = false',
      'allow_persistent_secrets = false',
      `preserve_insertion_order = ${keepsOrder}`,
      "TimeZone = 'UTC'",
      `allowed_directories = [${literal(inputs)}]`,
      'enable_external_access = false',
      'lock_configuration = true',
    ]) {
      await connection.run(`set ${setting}`);
    }
  } catch (error) {
    connection.closeSync();
    instance.closeSync();
    throw error;
  }
  connection.closeSync();
  return { connect: () => instance.connect(), close: () => instance.closeSync() };
}

export function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

export function identifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/**
 * Whether a Parquet file is in Brotli, which nobody reads: the decoder that DuckDB brings is of a release that writes
 * where it must not (CVE-2026-111497), and whoever makes the file chooses its codec. The footer says which: it is not
 * packed.
 */
export async function isInBrotli(connection: DuckDBConnection, file: string): Promise<boolean> {
  const packed = await connection.runAndReadAll(
    `select 1 from parquet_metadata(${literal(file)}) where compression = 'BROTLI' limit 1`,
  );
  return packed.currentRowCount > 0;
}
