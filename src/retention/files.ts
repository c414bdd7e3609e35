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
import type { SessionLease } from '../store/connections.ts';
import type { Pool } from '../store/database.ts';
import type { ActivityTable } from '../store/erasures.ts';
import type { ActivityRow } from '../store/retention.ts';
import { aloneWithRetention } from '../store/retention-runs.ts';

/** For files on their way into the archive, and out of it. */
const scratch = scratchFolders('retention');

/** What a run of the retention works with. */
export interface Retention {
  pool: Pool;
  /** Absent: there is no archive. */
  store: ObjectStore | undefined;
  /** Months that a workspace without a number of its own keeps; 0: for ever. */
  months: number;
  log: Pick<Log, 'info' | 'error'>;
  /** Told to stop; while the run is alone, also when it is not any more. */
  signal?: AbortSignal | undefined;
  /** While the run is alone. */
  lease?: SessionLease;
  /** Leaves out what has failed until its next try is due; absent: all is tried. */
  heedsBackOff?: boolean;
  /**
   * Runs work on some months as one job of this process, named by a UUID of theirs; absent: runs it as it is.
   * @throws {Error} when such a job ended its process repeatedly
   */
  asJob?: (id: string, work: () => Promise<void>) => Promise<void>;
  /** Rows of a file at most; unless told, ROWS_OF_FILE. */
  rowsOfFile?: number;
}

/** Rows and characters of a file: what a run takes of the disk, and what has to be done again when it is killed. */
export const ROWS_OF_FILE = 500_000;
export const CHARACTERS_OF_FILE = 67_108_864;

/** Money is a text: a price may have more digits than a decimal of Parquet. */
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
 * Does work of the retention while nobody else does any.
 * @returns undefined while somebody else is at it
 */
export function alone<T>(
  retention: Retention,
  work: (leased: Retention) => Promise<T>,
): Promise<T | undefined> {
  return aloneWithRetention(retention.pool, async (lease) => {
    await scratch.tidy();
    // An archive that cannot be reached fails at its next file, which names it.
    await retention.store?.sweep?.().catch(() => {});
    const { signal, release } = linkSignals({ signals: [retention.signal, lease.signal] });
    try {
      return await work({ ...retention, signal, lease });
    } finally {
      release();
    }
  });
}

/** Before each step that takes something away: who is told to stop, or is not alone any more, takes it no more. */
export async function requireLease({ signal, lease }: Retention): Promise<void> {
  signal?.throwIfAborted();
  await lease?.confirm();
}

/**
 * Writes rows as a file, puts it into the archive, fetches it from there and reads it to its end.
 * @throws {Error} that names the file, when what is read back is not what was given
 */
export async function putVerified(
  { store, signal }: Retention,
  { object, kind }: { object: string; kind: ActivityTable },
  rows: AsyncIterable<ActivityRow>,
): Promise<VerifiedFile> {
  const archive = requireStore(store);
  const folder = await scratch.make();
  try {
    const given = { rows: 0, checksum: 0n };
    async function* counted(): AsyncGenerator<ParquetRow> {
      for await (const row of rows) {
        given.rows += 1;
        given.checksum += checksumOf(row.id);
        yield row;
      }
    }
    const name = nameOf(archive, object);
    const file = path.join(folder, 'rows.parquet');
    const fetched = path.join(folder, 'fetched.parquet');
    return await named(name, [file, fetched], async () => {
      const written = await writeParquet(counted(), { file, columns: columns[kind], signal });
      await archive.put(object, readChunks(file), signal ? { signal } : {});
      await rm(file);
      await pipeline(await archive.get(object, signal ? { signal } : {}), createWriteStream(fetched));
      const found = await readBack(fetched, 'id');
      const differs =
        found.sha256 !== written.sha256 ||
        found.rows !== given.rows ||
        found.checksum !== String(given.checksum);
      if (differs)
        throw new ParquetError(
          `${name}: ${given.rows} rows were written, but the file that was read back differs (${found.rows} rows)`,
        );
      return { ...found, bytes: written.bytes };
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The first 60 bits of an id's MD5, as src/object-store/parquet.ts adds them up. */
function checksumOf(id: string): bigint {
  return BigInt(`0x${createHash('md5').update(id).digest('hex').slice(0, 15)}`);
}

/**
 * Fetches a file of the archive and gives its rows, page by page.
 * @throws {Error} that names the file, when it is not the one that was read back once
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
    const found = await named(name, [file], async () => {
      await pipeline(await archive.get(object!, signal ? { signal } : {}), createWriteStream(file));
      return readBack(file, 'id');
    });
    if (found.sha256 !== sha256 || found.rows !== rows)
      throw new ParquetError(
        `${name} has changed since it was written: it has ${found.rows} rows and SHA-256 ${found.sha256}, but the index has ${rows} rows and ${sha256}`,
      );
    for await (const page of readParquet(file, columns[kind])) {
      signal?.throwIfAborted();
      // Whole numbers come as texts.
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
 * What is said of a copy in the scratch folder is said of the file in the archive. What the system says of a copy, as
 * that its disk is full, has the file's name in front.
 */
async function named<T>(name: string, copies: readonly string[], work: () => Promise<T>): Promise<T> {
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
    const said = copies.reduce((text, copy) => text.replaceAll(copy, name), message);
    throw new ParquetError(said.includes(name) ? said : `${name}: ${said}`, { cause: error });
  }
}

interface ArchiveSettings extends BucketSettings, AddressSettings {
  ARCHIVE_URL: string;
}

/**
 * The archive of ARCHIVE_URL; undefined where it is not set.
 * @throws {ObjectStoreError} `config`
 */
export async function openArchive(settings: ArchiveSettings): Promise<ObjectStore | undefined> {
  if (settings.ARCHIVE_URL === '') return undefined;
  return openBySettings(settings.ARCHIVE_URL, settings);
}
