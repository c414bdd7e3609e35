import { createGzip } from 'node:zlib';
import type { ObjectStore, Written } from '../object-store/object-store.ts';
import { toUserObject, userFields } from '../operations/export/user-fields.ts';
import type { Definition } from '../profile/segment.ts';
import type { Pool } from '../store/database.ts';
import { readProfiles } from '../store/export.ts';
import { FIRST_ID, lookAtUsers } from '../store/segments.ts';
import { inSnapshot, type Snapshot } from '../store/snapshot.ts';
import {
  ExportError,
  findUnfinished,
  finish,
  type Progress,
  type Unfinished,
  type Wanted,
  writeUnfinished,
} from './progress.ts';

/** Users that are asked for at once whether they are meant. */
const LOOKED_AT = 5000;
/** Users that are read at once: any of them may have as much as a user can have. */
const READ = 200;
const USERS_OF_FILE = 50_000;
/** Users that are looked at for one file: whatever few of them are meant, what a kill costs is bounded. */
const LOOKED_AT_OF_FILE = 1_000_000;

const everybody: Definition = { all: [] };

export interface ExportOptions {
  pool: Pool;
  store: ObjectStore;
  serviceIdField: string;
  /** Leaves between two users; what is whole by then stays. */
  leaving: AbortSignal;
  /** Users of a file at most; at least as many as are looked at at once. */
  usersOfFile?: number;
  lookedAt?: number;
  onBegin?(unfinished: Unfinished): void;
  onProgress?(reached: { looked: number; users: number }): void;
}

/**
 * Writes the users of a workspace, or those of a segment, as files of gzipped NDJSON, by id, and their manifest in the
 * end. What an earlier run has left at the place is gone on with, behind its last whole file.
 * @throws {ExportError} that says what is in the way
 * @throws {ObjectStoreError}
 */
export async function exportUsers(wanted: Wanted, options: ExportOptions): Promise<Progress> {
  const { pool, store } = options;
  const exported = await inSnapshot(pool, store.where, (snapshot) => goOn(wanted, options, snapshot));
  if (exported) return exported;
  throw new ExportError(`another process exports to ${store.where} just now`);
}

async function goOn(wanted: Wanted, options: ExportOptions, snapshot: Snapshot): Promise<Progress> {
  const { store, leaving, onBegin } = options;
  const found = await findUnfinished(store, wanted);
  const none = { ...wanted, format: 'ndjson.gz', users: 0, users_cut: 0, after: FIRST_ID } as const;
  let progress: Unfinished = found ?? { ...none, moments: [], files: [] };
  onBegin?.(progress);
  const as_of = snapshot.asOf.toISOString();
  const reader = createReader(wanted, options, snapshot);
  for (;;) {
    const key = `users-${String(progress.files.length + 1).padStart(6, '0')}.ndjson.gz`;
    const pages = reader.pagesOfFile(progress.after);
    // Where nobody is meant, there is no file.
    const first = await pages.next();
    if (first.done) return finish(store, progress);
    const count = { users: 0, cut: 0, after: progress.after };
    const { bytes, sha256 }: Written = await store.put(
      key,
      gzipped(reader.lines(first.value, pages, count)),
      {
        signal: leaving,
      },
    );
    const isOfMoment = progress.moments.at(-1)?.as_of === as_of;
    progress = {
      ...progress,
      after: count.after,
      users: progress.users + count.users,
      users_cut: progress.users_cut + count.cut,
      moments: isOfMoment ? progress.moments : [...progress.moments, { as_of, first_file: key }],
      files: [...progress.files, { key, users: count.users, bytes, sha256 }],
    };
    await writeUnfinished(store, progress);
  }
}

/** Ids of users who are meant, and the last who was looked at for them. */
interface UsersPage {
  ids: string[];
  last: string;
}

interface Count {
  users: number;
  cut: number;
  after: string;
}

function createReader(
  { workspace: { id: workspaceId }, segment, fields }: Wanted,
  { serviceIdField, leaving, onProgress, ...sizes }: ExportOptions,
  { connection }: Snapshot,
) {
  const { usersOfFile = USERS_OF_FILE, lookedAt = LOOKED_AT } = sizes;
  const known = userFields(serviceIdField);
  const shown = fields.map((name) => [name, known[name]!] as [string, (typeof known)[string]]);
  const definition = segment?.definition ?? everybody;
  const reached = { looked: 0, users: 0 };

  /** From the first page with somebody on it, as many pages as fit into a file. */
  async function* pagesOfFile(behind: string): AsyncGenerator<UsersPage, void> {
    let [after, users, looked] = [behind, 0, 0];
    while (users + lookedAt <= usersOfFile && (users === 0 || looked < LOOKED_AT_OF_FILE)) {
      leaving.throwIfAborted();
      const part = { workspaceId, definition, after, limit: lookedAt, sample: lookedAt };
      const { read, sample, last } = await lookAtUsers(connection, part);
      if (last === undefined) return;
      [after, looked, users] = [last, looked + read, users + sample.length];
      reached.looked += read;
      // Behind the first who is meant, pages without anybody say how far it has come.
      if (users > 0) yield { ids: sample, last };
    }
  }

  async function* linesOf({ ids, last }: UsersPage, count: Count): AsyncGenerator<string> {
    for (let at = 0; at < ids.length; at += READ) {
      leaving.throwIfAborted();
      const users = await readProfiles(connection, workspaceId, { ids: ids.slice(at, at + READ), fields });
      users.sort((one, other) => (one.id < other.id ? -1 : 1));
      for (const user of users) {
        count.users += 1;
        if (user.cut.length > 0) count.cut += 1;
        yield `${JSON.stringify(toUserObject(user, shown))}\n`;
      }
      reached.users += users.length;
      onProgress?.(reached);
    }
    count.after = last;
  }

  async function* lines(
    first: UsersPage,
    more: AsyncIterable<UsersPage>,
    count: Count,
  ): AsyncGenerator<string> {
    yield* linesOf(first, count);
    for await (const page of more) yield* linesOf(page, count);
  }

  return { pagesOfFile, lines };
}

/** What the lines fail with, the file fails with. */
async function* gzipped(lines: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  const gzip = createGzip();
  const feeding = feed(gzip, lines).catch((error: Error) => void gzip.destroy(error));
  try {
    yield* gzip as AsyncIterable<Uint8Array>;
  } finally {
    // Whoever reads no further has the lines end before the connection is let go.
    gzip.destroy();
    await feeding;
  }
}

async function feed(gzip: ReturnType<typeof createGzip>, lines: AsyncIterable<string>): Promise<void> {
  for await (const line of lines) {
    if (gzip.destroyed) return;
    if (!gzip.write(line)) await drained(gzip);
  }
  gzip.end();
}

function drained(gzip: ReturnType<typeof createGzip>): Promise<void> {
  return new Promise((resolve) => {
    const go = () => {
      gzip.off('drain', go).off('close', go);
      resolve();
    };
    gzip.once('drain', go).once('close', go);
  });
}
