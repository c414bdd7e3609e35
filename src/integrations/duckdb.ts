import path from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import { importOptional } from '../platform/optional-package.ts';

export type DuckDbModule = typeof import('@duckdb/node-api');

const PACKAGE = {
  name: '@duckdb/node-api',
  users: 'Parquet files and syncs from files',
};

/**
 * Loads DuckDB, which most processes never need.
 * @throws {Error} made by `toError`, if the package or its build for this machine is not installed
 */
export const importDuckDb = (
  toError: (message: string, options: ErrorOptions) => Error,
): Promise<DuckDbModule> => importOptional(PACKAGE, () => import('@duckdb/node-api'), toError);

/**
 * Memory limit of DuckDB; it spills the rest to disk. It needs far less for rows of a few hundred bytes, but
 * it processes 2,048 rows at a time, which must fit: 200 MB for rows of 100 KB.
 */
const MEMORY = '1GiB';
/**
 * Number of threads. Each holds rows of its own in memory, and the lanes consume rows far more slowly than
 * one thread reads them.
 */
const THREADS = 1;

interface DuckDb {
  connect(): Promise<DuckDBConnection>;
  close(): void;
}

/** The folders that DuckDB uses. */
interface Sandbox {
  /** The only folder whose files statements may read and write. */
  inputs: string;
  /** Folder for data that exceeds the memory limit. */
  path: string;
  /** Maximum bytes on disk; if absent, the free space of the disk. */
  maxBytes?: number;
}

interface OpenOptions {
  /** File in `inputs` for the tables; if absent, they are kept in memory. */
  database?: string;
  /**
   * Keeps the rows in the order of their file. With one thread the order is kept without it, and row groups
   * can then be limited by bytes.
   */
  keepsOrder?: boolean;
}

/**
 * Opens a DuckDB that can access only one folder: no other file, no network, no extension, and no memory
 * above its limit. The needed extensions, Parquet and JSON, are built in.
 */
export async function openDuckDb(
  { DuckDBInstance }: DuckDbModule,
  { inputs, path: scratch, maxBytes }: Sandbox,
  { database = ':memory:', keepsOrder = false }: OpenOptions = {},
): Promise<DuckDb> {
  const instance = await DuckDBInstance.create(database);
  const connection = await instance.connect();
  try {
    // The order of the settings matters: after external access is off and the configuration is locked, none
    // can be changed.
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
 * Returns whether a Parquet file uses Brotli, which Penstock refuses: the decoder in DuckDB is from a release
 * with an out-of-bounds write (CVE-2026-111497), and the author of a file chooses its codec. The uncompressed
 * footer names the codec.
 */
export async function isInBrotli(connection: DuckDBConnection, file: string): Promise<boolean> {
  const packed = await connection.runAndReadAll(
    `select 1 from parquet_metadata(${literal(file)}) where compression = 'BROTLI' limit 1`,
  );
  return packed.currentRowCount > 0;
}
