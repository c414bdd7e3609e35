import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type { ObjectStore } from '../object-store/object-store.ts';
import { type BucketSettings, openBySettings } from '../object-store/open-object-store.ts';
import { toUserObject, userFields } from '../operations/export/user-fields.ts';
import type { DownloadSettings } from '../operations/operation.ts';
import { RECENT_DAYS } from '../operations/users.export.segment.ts';
import type { Config } from '../platform/config.ts';
import { NIL_UUID } from '../platform/ids.ts';
import { reachable } from '../platform/lifecycle.ts';
import type { AddressSettings } from '../platform/reach.ts';
import type { Json } from '../profile/json.ts';
import type { Definition } from '../profile/segment.ts';
import type { Pool } from '../store/database.ts';
import { readProfiles } from '../store/export.ts';
import type { LeasedExport } from '../store/segment-export-leases.ts';
import type { ExpiredExport, ExportCounts, NewSegmentExport } from '../store/segment-exports.ts';
import { evaluateUsers, findSegment } from '../store/segments.ts';
import { inSnapshot, type Snapshot } from '../store/transactions.ts';
import { gzipped, type LinesFile, zipped } from './write-rows.ts';

/** Number of users whose membership is evaluated in one query. */
const USERS_PER_QUERY = 5000;
/** Number of users that are read in one query. Each of them may have the maximum size of a user. */
const PROFILES_PER_QUERY = 100;
/** The limit of the vendor. */
const USERS_OF_FILE = 5000;
const DAY_MS = 86_400_000;

/** Thrown for an error that a retry cannot fix. The message names the cause. */
export class SegmentExportError extends Error {
  override name = 'SegmentExportError';
}

interface WriteOptions {
  pool: Pool;
  store: ObjectStore;
  /**
   * Whether the store is a bucket, which gets files of some users each. Otherwise one file contains all
   * users.
   */
  isBucket: boolean;
  serviceIdField: string;
  /** Stops the export between two users. */
  leaving: AbortSignal;
  usersOfFile?: number;
  /**
   * Called with the progress between users. If the export ends here, a file that was already written is not
   * part of it.
   */
  onProgress?(counts: ExportCounts): void;
  /**
   * Checks after each file that this process still owns the export.
   * @throws if it does not
   */
  requireMine(counts: ExportCounts): Promise<void>;
}

/**
 * Writes the users of a segment as NDJSON files, ordered by id, from one snapshot. Files that an earlier
 * attempt left in a bucket are removed first.
 * @returns undefined if another process is writing this export
 * @throws {SegmentExportError}
 * @throws {ObjectStoreError}
 */
export function writeSegmentExport(
  wanted: LeasedExport,
  options: WriteOptions,
): Promise<ExportCounts | undefined> {
  if (options.isBucket !== (wanted.url === null))
    throw new SegmentExportError(
      'SEGMENT_EXPORT_URL is a bucket for web and a folder for sync, or the other way round',
    );
  return inSnapshot(options.pool, `segment export ${wanted.id}`, (snapshot) =>
    write(wanted, options, snapshot),
  );
}

async function write(wanted: LeasedExport, options: WriteOptions, snapshot: Snapshot): Promise<ExportCounts> {
  const { store, leaving, isBucket, onProgress, requireMine } = options;
  const segment = await findSegment(snapshot.connection, wanted.workspaceId, wanted.segmentId);
  if (!segment) throw new SegmentExportError('the segment was archived');
  const counts: ExportCounts = { users: 0, files: 0, bytes: 0 };
  const onUsers = (users: number) => {
    counts.users += users;
    onProgress?.({ ...counts });
  };
  const files = filesOf(wanted, segment.definition, { ...options, snapshot, onUsers });
  async function* counted(): AsyncGenerator<LinesFile> {
    for await (const file of files) {
      counts.files += 1;
      yield file;
    }
  }
  if (!isBucket) {
    const { bytes } = await store.put(fileOfLink(wanted), zipped(counted()), { signal: leaving });
    return { ...counts, bytes };
  }
  const prefix = prefixInBucket(wanted);
  await removeAll(store, prefix);
  for await (const file of counted()) {
    const key = `${prefix}${newFileName(wanted.outputFormat)}`;
    const packed = wanted.outputFormat === 'gzip' ? gzipped(file.lines) : zipped(only(file));
    const { bytes } = await store.put(key, packed, { signal: leaving });
    counts.bytes += bytes;
    try {
      await requireMine(counts);
    } catch (error) {
      // The process that owns the export now has already removed leftover files, so it would not find this
      // one.
      await store.remove(key);
      throw error;
    }
  }
  return counts;
}

async function* only(file: LinesFile): AsyncGenerator<LinesFile> {
  yield file;
}

interface Reading extends Pick<WriteOptions, 'leaving' | 'serviceIdField' | 'usersOfFile'> {
  snapshot: Snapshot;
  /** Called with the number of users of each page after their lines were read. */
  onUsers(users: number): void;
}

/**
 * Yields files of some users each. The lines of a file must be read to their end before the next file is
 * requested.
 */
async function* filesOf(
  wanted: LeasedExport,
  definition: Definition,
  reading: Reading,
): AsyncGenerator<LinesFile> {
  const { usersOfFile = USERS_OF_FILE } = reading;
  const pages = pagesOf(wanted, definition, reading);
  const lineOf = createLines(wanted, reading);
  let page = await pages.next();
  for (let files = 1; !page.done; files += 1) {
    async function* lines(): AsyncGenerator<string> {
      for (let users = 0; !page.done && users < usersOfFile; page = await pages.next()) {
        users += page.value.length;
        yield* lineOf(page.value);
      }
    }
    yield { name: `users-${String(files).padStart(6, '0')}.json`, lines: lines() };
  }
}

/**
 * Yields the ids of the users in the segment, in pages that are read with one query. A page never crosses the
 * end of a file.
 */
async function* pagesOf(
  { workspaceId }: LeasedExport,
  definition: Definition,
  { leaving, snapshot, usersOfFile = USERS_OF_FILE }: Reading,
): AsyncGenerator<string[], void> {
  let [waiting, inFile] = [[] as string[], 0];
  const pageSize = () => Math.min(PROFILES_PER_QUERY, usersOfFile - inFile);
  for (let after: string | undefined = NIL_UUID; after !== undefined; ) {
    leaving.throwIfAborted();
    const part = { workspaceId, definition, after, limit: USERS_PER_QUERY, sample: USERS_PER_QUERY };
    const { sample, last, read } = await evaluateUsers(snapshot.connection, part);
    waiting.push(...sample);
    after = read < USERS_PER_QUERY ? undefined : last;
    while (waiting.length >= pageSize() || (after === undefined && waiting.length > 0)) {
      const page = waiting.slice(0, pageSize());
      waiting = waiting.slice(page.length);
      inFile = (inFile + page.length) % usersOfFile;
      yield page;
    }
  }
}

function createLines(
  { workspaceId, fields, attributes }: LeasedExport,
  { leaving, serviceIdField, snapshot, onUsers }: Reading,
) {
  const fieldsByName = userFields(serviceIdField);
  const shown = fields.flatMap((name) =>
    fieldsByName[name] ? [[name, fieldsByName[name]] as [string, (typeof fieldsByName)[string]]] : [],
  );
  const names = shown.map(([name]) => name);
  const wanted = attributes && new Set(attributes);
  const since = new Date(snapshot.asOf.getTime() - RECENT_DAYS * DAY_MS).toISOString();

  return async function* lines(ids: string[]): AsyncGenerator<string> {
    leaving.throwIfAborted();
    const users = await readProfiles(snapshot.connection, workspaceId, { ids, fields: names });
    users.sort((one, other) => (one.id < other.id ? -1 : 1));
    for (const user of users) yield `${JSON.stringify(narrowed(toUserObject(user, shown), wanted, since))}\n`;
    onUsers(users.length);
  };
}

/** Removes events and products that are not recent, and custom attributes that were not requested. */
function narrowed(
  user: Record<string, Json>,
  wanted: Set<string> | null,
  since: string,
): Record<string, Json> {
  for (const name of ['custom_events', 'purchases']) {
    const recent = (user[name] as { last: string }[] | undefined)?.filter(({ last }) => last >= since);
    if (recent) user[name] = recent;
    if (recent?.length === 0) delete user[name];
  }
  if (wanted && user.custom_attributes) {
    const kept = Object.entries(user.custom_attributes).filter(([name]) => wanted.has(name));
    if (kept.length > 0) user.custom_attributes = Object.fromEntries(kept);
    else delete user.custom_attributes;
  }
  return user;
}

export interface ExportFilesSettings extends BucketSettings, AddressSettings {
  SEGMENT_EXPORT_URL: string;
  DATA_DIR: string;
}

/**
 * Returns whether exports go to a bucket. Its owner then reads them there, and there are no download links.
 */
export function isBucket({ SEGMENT_EXPORT_URL }: Pick<ExportFilesSettings, 'SEGMENT_EXPORT_URL'>): boolean {
  return SEGMENT_EXPORT_URL.startsWith('s3://');
}

/** Path of the files that links open. */
export const DOWNLOADS = '/exports';

/** Reads the settings for links to exported files. */
export function createDownloadSettings(config: Config): DownloadSettings {
  const base = (config.PUBLIC_URL || `http://${reachable(config.HOST)}:${config.PORT}`).replace(/\/+$/, '');
  return { isBucket: isBucket(config), urlOf: (token) => `${base}${DOWNLOADS}/${token}` };
}

/**
 * Opens the location of segment exports: SEGMENT_EXPORT_URL, by default a folder in DATA_DIR.
 * @throws {ObjectStoreError} `config`
 */
export function openExportFiles(settings: ExportFilesSettings): Promise<ObjectStore> {
  const location = settings.SEGMENT_EXPORT_URL || path.join(settings.DATA_DIR, 'segment-exports');
  return openBySettings(location, settings);
}

/** Returns the key of the file to which the download link leads. */
export const fileOfLink = ({ objectPrefix }: Pick<ExpiredExport, 'objectPrefix'>) => `${objectPrefix}.zip`;

/** Returns the prefix of an export's keys in a bucket. The day is the day of the request in UTC. */
export function prefixInBucket({
  segmentId,
  objectPrefix,
  requestedAt,
}: Pick<NewSegmentExport, 'segmentId' | 'objectPrefix'> & { requestedAt: Date }): string {
  return `segment-export/${segmentId}/${requestedAt.toISOString().slice(0, 10)}/${objectPrefix}/`;
}

/** Returns a random file name. */
function newFileName(format: NewSegmentExport['outputFormat']): string {
  return `${randomBytes(16).toString('hex')}.${format === 'gzip' ? 'gz' : 'zip'}`;
}

/** Removes all objects whose keys begin with a prefix. */
export async function removeAll(store: ObjectStore, prefix: string): Promise<void> {
  for (let after: string | null = ''; after !== null; ) {
    const { objects, next } = await store.list(prefix, after === '' ? {} : { after });
    for (const { key } of objects) await store.remove(key);
    after = next;
  }
}
