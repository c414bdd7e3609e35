import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type { ObjectStore } from '../object-store/object-store.ts';
import { type BucketSettings, openBySettings } from '../object-store/open-object-store.ts';
import { toUserObject, userFields } from '../operations/export/user-fields.ts';
import { RECENT_DAYS } from '../operations/users.export.segment.ts';
import { NIL_UUID } from '../platform/ids.ts';
import type { AddressSettings } from '../platform/reach.ts';
import type { Json } from '../profile/json.ts';
import type { Definition } from '../profile/segment.ts';
import type { Pool } from '../store/database.ts';
import { readProfiles } from '../store/export.ts';
import type { LeasedExport } from '../store/segment-export-leases.ts';
import type { ExpiredExport, ExportCounts, NewSegmentExport } from '../store/segment-exports.ts';
import { findSegment, lookAtUsers } from '../store/segments.ts';
import { inSnapshot, type Snapshot } from '../store/transactions.ts';
import { gzipped, type LinesFile, zipped } from './write-rows.ts';

/** Users that are asked for at once whether they are meant. */
const LOOKED_AT = 5000;
/** Users that are read at once: any of them may have as much as a user can have. */
const READ = 100;
/** As the vendor's. */
const USERS_OF_FILE = 5000;
const DAY_MS = 86_400_000;

/** What no other try would mend; the message says what is in the way. */
export class SegmentExportError extends Error {
  override name = 'SegmentExportError';
}

interface WriteOptions {
  pool: Pool;
  store: ObjectStore;
  /** The store is a bucket: a file for some users each; else one file for all of them. */
  isBucket: boolean;
  serviceIdField: string;
  /** Leaves between two users. */
  leaving: AbortSignal;
  usersOfFile?: number;
  /** Hears how far it has come, between users; a file that is there by then is no part of an export that ends here. */
  onProgress?(counts: ExportCounts): void;
  /**
   * Whether the export is this process's still, asked after each file.
   * @throws when it is not
   */
  requireMine(counts: ExportCounts): Promise<void>;
}

/**
 * Writes everyone of a segment as files of NDJSON, by id, as of one moment. What an earlier try has left in a bucket is
 * removed first.
 * @returns undefined when another process is at it
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
      // Whoever writes it now has looked for what was left already.
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
  /** Hears of the users of each page once their lines are read. */
  onUsers(users: number): void;
}

/** Files of some users each, one after the other: the lines of one are read to their end before the next begins. */
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

/** Ids of those who are meant, as many as are read at once; no page goes over the end of a file. */
async function* pagesOf(
  { workspaceId }: LeasedExport,
  definition: Definition,
  { leaving, snapshot, usersOfFile = USERS_OF_FILE }: Reading,
): AsyncGenerator<string[], void> {
  let [waiting, inFile] = [[] as string[], 0];
  const most = () => Math.min(READ, usersOfFile - inFile);
  for (let after: string | undefined = NIL_UUID; after !== undefined; ) {
    leaving.throwIfAborted();
    const part = { workspaceId, definition, after, limit: LOOKED_AT, sample: LOOKED_AT };
    const { sample, last, read } = await lookAtUsers(snapshot.connection, part);
    waiting.push(...sample);
    after = read < LOOKED_AT ? undefined : last;
    while (waiting.length >= most() || (after === undefined && waiting.length > 0)) {
      const page = waiting.slice(0, most());
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
  const known = userFields(serviceIdField);
  const shown = fields.flatMap((name) =>
    known[name] ? [[name, known[name]] as [string, (typeof known)[string]]] : [],
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

/** Events and products that are recent, and of the custom attributes those that are wanted alone. */
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

/** Whether exports go to a bucket: then its owner has them, and there are no links. */
export function isBucket({ SEGMENT_EXPORT_URL }: Pick<ExportFilesSettings, 'SEGMENT_EXPORT_URL'>): boolean {
  return SEGMENT_EXPORT_URL.startsWith('s3://');
}

/**
 * Where exports of segments lie: the place of SEGMENT_EXPORT_URL, unless told a folder of DATA_DIR.
 * @throws {ObjectStoreError} `config`
 */
export function openExportFiles(settings: ExportFilesSettings): Promise<ObjectStore> {
  const place = settings.SEGMENT_EXPORT_URL || path.join(settings.DATA_DIR, 'segment-exports');
  return openBySettings(place, settings);
}

/** Key of the one file that a link leads to. */
export const fileOfLink = ({ objectPrefix }: Pick<ExpiredExport, 'objectPrefix'>) => `${objectPrefix}.zip`;

/** What the keys of an export begin with in a bucket; the day is that of the request, in UTC. */
export function prefixInBucket({
  segmentId,
  objectPrefix,
  requestedAt,
}: Pick<NewSegmentExport, 'segmentId' | 'objectPrefix'> & { requestedAt: Date }): string {
  return `segment-export/${segmentId}/${requestedAt.toISOString().slice(0, 10)}/${objectPrefix}/`;
}

/** A name that no other file has. */
function newFileName(format: NewSegmentExport['outputFormat']): string {
  return `${randomBytes(16).toString('hex')}.${format === 'gzip' ? 'gz' : 'zip'}`;
}

/** Removes what lies under keys of one beginning. */
export async function removeAll(store: ObjectStore, prefix: string): Promise<void> {
  for (let after: string | null = ''; after !== null; ) {
    const { objects, next } = await store.list(prefix, after === '' ? {} : { after });
    for (const { key } of objects) await store.remove(key);
    after = next;
  }
}
