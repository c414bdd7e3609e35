import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { ObjectStore } from '../object-store/object-store.ts';
import { type BucketSettings, openBySettings } from '../object-store/open-object-store.ts';
import {
  type ParquetColumn,
  ParquetError,
  type ParquetRow,
  readBack,
  readParquet,
} from '../object-store/parquet.ts';
import { writeParquet } from '../object-store/write-parquet.ts';
import { readChunks, scratchFolders } from '../platform/files.ts';
import type { Log } from '../platform/log.ts';
import type { AddressSettings } from '../platform/reach.ts';
import { linkSignals } from '../platform/time-limit.ts';
import type { ArchiveFile, VerifiedFile } from '../store/archive-files.ts';
import type { Pool } from '../store/database.ts';
import type { ActivityTable } from '../store/erasures.ts';
import type { Lease } from '../store/leases.ts';
import type { ActivityRow } from '../store/retention.ts';
import { holdRetentionLock } from '../store/retention-runs.ts';

/** Folders for files on their way into and out of the archive. */
const scratch = scratchFolders('retention');

/** Dependencies and options of a retention run. */
export interface Retention {
  pool: Pool;
  /** Absent if there is no archive. */
  store: ObjectStore | undefined;
  /** Months to keep for a workspace without its own setting; 0 keeps all months. */
  months: number;
  log: Pick<Log, 'info' | 'error'>;
  /** Aborted when the run has to stop. While the lock is held, also aborted when the lock is lost. */
  signal?: AbortSignal | undefined;
  /** Set while the run holds the retention lock. */
  lease?: Lease;
  /** Skips failed months until their next attempt is due. Absent: all months are tried. */
  heedsBackOff?: boolean;
  /**
   * Runs work on some months as one job of this process, with a UUID that depends on the months. Absent: runs
   * the work directly.
   *
   * @throws {Error} if such a job ended its process repeatedly
   */
  asJob?: (id: string, work: () => Promise<void>) => Promise<void>;
  /** Maximum number of rows per file; by default ROWS_OF_FILE. */
  rowsOfFile?: number;
}

/**
 * Maximum rows and characters of a file. They limit the disk space that a run needs, and the work that is
 * repeated after a kill.
 */
export const ROWS_OF_FILE = 500_000;
export const CHARACTERS_OF_FILE = 67_108_864;

/** Prices are text, because a price may have more digits than a Parquet decimal. */
const columns: Record<ActivityTable, ParquetColumn[]> = {
  events: [
    { name: 'id', type: 'uuid' },
    { name: 'profile_id', member: 'profileId', type: 'uuid' },
    { name: 'name', type: 'text' },
    { name: 'time', type: 'timestamp' },
    { name: 'app_id', member: 'appId', type: 'text' },
    { name: 'properties', type: 'json' },
  ],
  purchases: [
    { name: 'id', type: 'uuid' },
    { name: 'profile_id', member: 'profileId', type: 'uuid' },
    { name: 'product_id', member: 'productId', type: 'text' },
    { name: 'currency', type: 'text' },
    { name: 'price', type: 'text' },
    { name: 'quantity', type: 'bigint' },
    { name: 'time', type: 'timestamp' },
    { name: 'app_id', member: 'appId', type: 'text' },
    { name: 'properties', type: 'json' },
  ],
};

/**
 * Runs `work` while holding the retention lock.
 *
 * @returns undefined if another process holds the lock
 */
export function withRetentionLock<T>(
  retention: Retention,
  work: (leased: Retention) => Promise<T>,
): Promise<T | undefined> {
  return holdRetentionLock(retention.pool, async (lease) => {
    await scratch.tidy();
    // If the archive cannot be reached, the next file fails with an error that names it.
    await retention.store?.sweep?.().catch(() => {});
    const { signal, release } = linkSignals({ signals: [retention.signal, lease.signal] });
    try {
      return await work({ ...retention, signal, lease });
    } finally {
      release();
    }
  });
}

/**
 * Checks, before each step that removes data, that the run was not stopped and still holds its lock.
 *
 * @throws if it was stopped or the lock is lost
 */
export async function requireLease({ signal, lease }: Retention): Promise<void> {
  signal?.throwIfAborted();
  await lease?.confirm();
}

/**
 * Writes rows to a file, uploads it to the archive, downloads it again and reads it completely.
 *
 * @throws {Error} with the file name, if the downloaded content differs
 */
export async function putVerified(
  { store, signal }: Retention,
  { object, kind }: { object: string; kind: ActivityTable },
  rows: AsyncIterable<ActivityRow>,
): Promise<VerifiedFile> {
  const archive = requireStore(store);
  const folder = await scratch.make();
  try {
    const expected = { rows: 0, checksum: 0n };
    async function* counted(): AsyncGenerator<ParquetRow> {
      for await (const row of rows) {
        expected.rows += 1;
        expected.checksum += checksumOf(row.id);
        yield row;
      }
    }
    const name = nameOf(archive, object);
    const file = path.join(folder, 'rows.parquet');
    const fetched = path.join(folder, 'fetched.parquet');
    return await withFileName(name, [file, fetched], async () => {
      const written = await writeParquet(counted(), { file, columns: columns[kind], signal });
      await archive.put(object, readChunks(file), signal ? { signal } : {});
      await rm(file);
      await pipeline(await archive.get(object, signal ? { signal } : {}), createWriteStream(fetched));
      const actual = await readBack(fetched, 'id');
      const differs =
        actual.sha256 !== written.sha256 ||
        actual.rows !== expected.rows ||
        actual.checksum !== String(expected.checksum);
      if (differs)
        throw new ParquetError(
          `${name}: ${expected.rows} rows were written, but the file that was read back differs (${actual.rows} rows)`,
        );
      return { ...actual, bytes: written.bytes };
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Returns the first 60 bits of an id's MD5, which src/object-store/parquet.ts adds up. */
function checksumOf(id: string): bigint {
  return BigInt(`0x${createHash('md5').update(id).digest('hex').slice(0, 15)}`);
}

/**
 * Downloads a file of the archive and yields pages of its rows.
 *
 * @throws {Error} with the file name, if its content has changed since it was verified
 */
export async function* readArchived(
  { store, signal }: Retention,
  { object, kind, sha256, rows }: Pick<ArchiveFile, 'object' | 'kind' | 'sha256' | 'rows'>,
): AsyncGenerator<ActivityRow[]> {
  const archive = requireStore(store);
  const name = nameOf(archive, object!);
  const folder = await scratch.make();
  const file = path.join(folder, 'rows.parquet');
  try {
    const actual = await withFileName(name, [file], async () => {
      await pipeline(await archive.get(object!, signal ? { signal } : {}), createWriteStream(file));
      return readBack(file, 'id');
    });
    if (actual.sha256 !== sha256 || actual.rows !== rows)
      throw new ParquetError(
        `${name} has changed since it was written: it has ${actual.rows} rows and SHA-256 ${actual.sha256}, but the index has ${rows} rows and ${sha256}`,
      );
    for await (const page of readParquet(file, columns[kind])) {
      signal?.throwIfAborted();
      // Integers are read as text.
      yield (page as ActivityRow[]).map((row) =>
        row.quantity === undefined ? row : { ...row, quantity: Number(row.quantity) },
      );
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export function requireStore(store: ObjectStore | undefined): ObjectStore {
  if (store === undefined)
    throw new ParquetError('ARCHIVE_URL is not set. Set it to a folder or to s3://bucket/prefix');
  return store;
}

function nameOf(store: ObjectStore, object: string): string {
  return `${store.where}${store.where.endsWith('/') ? '' : '/'}${object}`;
}

/**
 * Rewrites errors about a temporary copy, so that they name the file in the archive. System errors, such as a
 * full disk, get the file name as a prefix.
 */
async function withFileName<T>(name: string, copies: readonly string[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const { code, syscall, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOSPC' && syscall !== undefined)
      throw new ParquetError(
        `${name}: the disk with the temporary copy in ${path.dirname(copies[0]!)} is full`,
        {
          cause: error,
        },
      );
    if (!(error instanceof ParquetError) && syscall === undefined) throw error;
    const renamed = copies.reduce((text, copy) => text.replaceAll(copy, name), message);
    throw new ParquetError(renamed.includes(name) ? renamed : `${name}: ${renamed}`, { cause: error });
  }
}

interface ArchiveSettings extends BucketSettings, AddressSettings {
  ARCHIVE_URL: string;
}

/**
 * Opens the archive of ARCHIVE_URL. Undefined if the setting is empty.
 *
 * @throws {ObjectStoreError} `config`
 */
export async function openArchive(settings: ArchiveSettings): Promise<ObjectStore | undefined> {
  if (settings.ARCHIVE_URL === '') return undefined;
  return openBySettings(settings.ARCHIVE_URL, settings);
}
