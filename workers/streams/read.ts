import { NIL } from 'uuid';
import { toServiceId } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import type { Pool } from '../../src/store/database.ts';
import { type LogRow, readActivity, readLog, readNames } from '../../src/store/stream-log.ts';
import { type Message, messageTypes } from '../../src/streams/message.ts';

/** Rows of the log that are read at once, while those before the last have fewer entries than are looked up at once. */
const ROWS = 64;
/** Entries that are looked up at once. */
const ENTRIES = 500;

/** Behind which row, and how many entries of the next one, everything is delivered. */
export interface Cursor {
  position: string;
  place: number;
}

export interface Read {
  message: Message;
  /** The cursor when it is delivered. */
  cursor: Cursor;
}

export interface Page {
  read: Read[];
  /** The cursor when all of them are: some entries have nothing to tell any more. */
  end: Cursor;
}

/**
 * Reads what is behind a cursor, a page at a time, and each row of the log once: what a page leaves of a row is kept for
 * the next. Events and purchases come from their tables as they are now: those of users who were deleted are gone, and
 * their attributes are not told any more.
 * @returns gives the next page; nothing when all that is decided was read
 */
export function openReader(
  pool: Pool,
  workspaceId: string,
  start: Cursor,
): (horizon: string) => Promise<Page | undefined> {
  let cursor = start;
  let rows: LogRow[] = [];

  return async (horizon) => {
    if (rows.length === 0)
      rows = await readLog(pool, workspaceId, {
        ...{ after: cursor.position, horizon, limit: ROWS, entries: ENTRIES + cursor.place },
      });
    const entries: Entry[] = [];
    let end = cursor;
    let [row] = rows;
    while (row && entries.length < ENTRIES) {
      const last = Math.min(row.ids.length, end.place + ENTRIES - entries.length);
      for (let place = end.place; place < last; place++) {
        end =
          place + 1 === row.ids.length
            ? { position: row.id, place: 0 }
            : { position: end.position, place: place + 1 };
        entries.push(entryOf(row, place, end));
      }
      if (end.place > 0) break;
      rows = rows.slice(1);
      [row] = rows;
    }
    if (entries.length === 0) return undefined;
    const read = await toMessages(pool, workspaceId, entries);
    cursor = end;
    return { read, end };
  };
}

interface Entry {
  kind: keyof typeof messageTypes;
  profileId: string;
  id: string;
  detail: Json | undefined;
  time: string;
  cursor: Cursor;
}

function entryOf({ at, kinds, profileIds, ids, details }: LogRow, place: number, cursor: Cursor): Entry {
  return {
    kind: kinds[place] as Entry['kind'],
    profileId: profileIds[place]!,
    id: ids[place]!,
    detail: details?.[place],
    time: at.toISOString(),
    cursor,
  };
}

async function toMessages(pool: Pool, workspaceId: string, entries: Entry[]): Promise<Read[]> {
  const allOf = (kind: Entry['kind']) => entries.filter((entry) => entry.kind === kind);
  const profiles = [...new Set(entries.map(({ profileId }) => profileId))].filter((id) => id !== NIL);
  const [activity, names] = await Promise.all([
    readActivity(pool, workspaceId, { events: allOf('e'), purchases: allOf('p') }),
    readNames(pool, workspaceId, profiles),
  ]);
  return entries.flatMap((entry) => {
    const { kind, id, profileId, time, cursor } = entry;
    const isActivity = kind === 'e' || kind === 'p';
    // Who was deleted may not be erased yet.
    const data = isActivity ? names.has(profileId) && activity.get(id) : dataOf(entry, names);
    if (!data) return [];
    const user =
      profileId === NIL
        ? null
        : { service_id: toServiceId(profileId), external_id: names.get(profileId) ?? null };
    const key = user?.service_id ?? addressOf(entry);
    return [{ message: { id, type: messageTypes[kind], time, workspaceId, key, user, data }, cursor }];
  });
}

/** What is told of users who were deleted since: that, and whose they were. */
const NAMELESS = new Set<unknown>(['deleted', 'merged_into', 'merged']);

/** @returns nothing of a user who was deleted since, but that */
function dataOf({ kind, profileId, detail }: Entry, names: ReadonlyMap<string, unknown>): string | undefined {
  const said = { ...(detail as Record<string, Json>) };
  if (profileId !== NIL && !names.has(profileId) && !(kind === 'i' && NAMELESS.has(said.change)))
    return undefined;
  for (const name of ['into', 'from'])
    if (kind === 'i' && typeof said[name] === 'string') said[name] = toServiceId(said[name]);
  return JSON.stringify(said);
}

function addressOf({ detail }: Entry): string {
  const { email, phone } = detail as { email?: string; phone?: string };
  return email ?? phone ?? '';
}
