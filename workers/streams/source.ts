import { LRUCache } from 'lru-cache';
import { NIL_UUID } from '../../src/platform/ids.ts';
import { toServiceId } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import type { Pool } from '../../src/store/database.ts';
import {
  type ActivityKey,
  type LogRow,
  readLog,
  readLoggedActivity,
  readNames,
} from '../../src/store/stream-log.ts';
import {
  envelopeOf,
  type LogPlace,
  type Message,
  messageTypes,
  positionOf,
} from '../../src/streams/destination.ts';

/** Rows of the log that are read at once, while those before the last have fewer entries than are looked up at once. */
const ROWS = 64;
const ENTRIES = 500;
/** Entries of a row that are looked up, and kept, together. */
const PART_ENTRIES = 250;

/**
 * Several destinations of a workspace go along the log together: what one has read just now is told to the others as it
 * was. Not for long, since a user may be deleted meanwhile.
 */
const FRESH_MS = 1000;
const MOST_BYTES = 33_554_432;
/** Of an entry or a message, beside its texts. */
const OVERHEAD_BYTES = 400;

/** A stretch of a row's entries: from `first` to before `end`. */
export interface Part {
  row: LogRow;
  first: number;
  end: number;
}

/** What there is to be told of an entry: its place in its row. */
export interface Told {
  row: LogRow;
  place: number;
  message: Message;
  /** Its JSON, and the bytes of that. */
  envelope: string;
  bytes: number;
}

/** What is in the log and what it stands for, for all destinations of a process. */
export interface Source {
  partEntries: number;
  /** The next rows that are decided; none when there are none. */
  rowsBehind(workspaceId: string, cursor: LogPlace, horizon: string): Promise<LogRow[]>;
  /**
   * What each part has to tell. Events and purchases come from their tables as they are now: those of users who were
   * deleted are gone, and their attributes are not told any more.
   */
  tell(workspaceId: string, parts: Part[]): Promise<Told[][]>;
  /** One that shares nothing with others: for who reads beyond what is decided, where rows may come in between. */
  apart(): Source;
}

/** @param serviceIdField wire name of the service id */
export function openSource(pool: Pool, serviceIdField: string): Source {
  const options = { maxSize: MOST_BYTES, ttl: FRESH_MS };
  /** By the workspace and the row before. */
  const rows = new LRUCache<string, LogRow>({
    ...options,
    sizeCalculation: ({ ids, bytes }) => bytes + OVERHEAD_BYTES * (ids.length + 1),
  });
  /** By the workspace, the row, and the first entry. */
  const known = new LRUCache<string, Told[]>({
    ...options,
    sizeCalculation: (part) =>
      part.reduce((sum, { bytes }) => sum + 2 * bytes + OVERHEAD_BYTES, OVERHEAD_BYTES),
  });
  const underWay = new Map<string, Promise<Told[]>>();

  /** What was read by another that is ahead, as far as it has come. */
  function follow(workspaceId: string, { position, place }: LogPlace): LogRow[] {
    const found: LogRow[] = [];
    let entries = -place;
    for (let row = rows.get(`${workspaceId}/${position}`); row; row = rows.get(`${workspaceId}/${row.id}`)) {
      found.push(row);
      entries += row.ids.length;
      if (entries >= ENTRIES || found.length === ROWS) break;
    }
    return found;
  }

  async function lookUp(workspaceId: string, parts: Part[]): Promise<Told[][]> {
    const [events, purchases]: [ActivityKey[], ActivityKey[]] = [[], []];
    const profiles = new Set<string>();
    for (const { row, first, end } of parts)
      for (let place = first; place < end; place++) {
        const profileId = row.profileIds[place]!;
        if (row.kinds[place] === 'e') events.push({ profileId, id: row.ids[place]! });
        if (row.kinds[place] === 'p') purchases.push({ profileId, id: row.ids[place]! });
        profiles.add(profileId);
      }
    profiles.delete(NIL_UUID);
    const [activity, names] = await Promise.all([
      readLoggedActivity(pool, workspaceId, { events, purchases }),
      readNames(pool, workspaceId, [...profiles]),
    ]);
    return parts.map(({ row, first, end }) => {
      const time = row.at.toISOString();
      const told: Told[] = [];
      for (let place = first; place < end; place++) {
        const message = messageOf(row, place, { workspaceId, time, activity, names });
        if (!message) continue;
        const envelope = envelopeOf(message, serviceIdField);
        told.push({ row, place, message, envelope, bytes: Buffer.byteLength(envelope) });
      }
      return told;
    });
  }

  return {
    partEntries: PART_ENTRIES,
    apart: () => openSource(pool, serviceIdField),

    async rowsBehind(workspaceId, cursor, horizon) {
      const followed = follow(workspaceId, cursor);
      if (followed.length > 0) return followed;
      const { position, place } = cursor;
      const read = await readLog(pool, workspaceId, {
        ...{ after: position, horizon, limit: ROWS, entries: ENTRIES + place },
      });
      for (const row of read) rows.set(`${workspaceId}/${row.behind}`, row);
      return read;
    },

    async tell(workspaceId, parts) {
      const missing: Part[] = [];
      const keys: string[] = [];
      let looked: Promise<Told[][]> | undefined;
      const told = parts.map((part): Promise<Told[]> | Told[] => {
        const key = `${workspaceId}/${part.row.id}/${part.first}`;
        const there = known.get(key) ?? underWay.get(key);
        if (there) return there;
        const place = missing.push(part) - 1;
        keys.push(key);
        // All that is missing is looked up at once, when it is known what that is.
        looked ??= Promise.resolve().then(() => lookUp(workspaceId, missing));
        const coming = looked.then((all) => all[place]!);
        underWay.set(key, coming);
        return coming;
      });
      try {
        return await Promise.all(told);
      } finally {
        const found = await looked?.catch(() => undefined);
        for (const [place, key] of keys.entries()) {
          underWay.delete(key);
          if (found) known.set(key, found[place]!);
        }
      }
    },
  };
}

interface Found {
  workspaceId: string;
  time: string;
  /** JSON, by id. */
  activity: ReadonlyMap<string, string>;
  /** External ids by profile; who was deleted is missing. */
  names: ReadonlyMap<string, string | null>;
}

/** @returns nothing of what is gone */
function messageOf(
  { id: row, kinds, profileIds, ids, details }: LogRow,
  place: number,
  { workspaceId, time, activity, names }: Found,
): Message | undefined {
  const kind = kinds[place] as keyof typeof messageTypes;
  const profileId = profileIds[place]!;
  const id = ids[place]!;
  const isActivity = kind === 'e' || kind === 'p';
  const detail = details?.[place];
  // Who was deleted may not be erased yet.
  const data = isActivity
    ? names.has(profileId) && activity.get(id)
    : dataOf({ kind, profileId, detail }, names);
  if (!data) return undefined;
  const head = { id, position: positionOf(row, place), type: messageTypes[kind], time, workspaceId };
  if (profileId === NIL_UUID) return { ...head, key: addressOf(detail), user: null, data };
  const key = toServiceId(profileId);
  const user = { service_id: key, external_id: names.get(profileId) ?? null };
  return { ...head, key, user, data };
}

interface Entry {
  kind: keyof typeof messageTypes;
  profileId: string;
  detail: Json | undefined;
}

/** What is told of users who were deleted since: that, and whose they were. */
const NAMELESS = new Set<unknown>(['deleted', 'merged_into', 'merged']);

/** @returns nothing of a user who was deleted since, but that, and nothing of an erased entry */
function dataOf({ kind, profileId, detail }: Entry, names: ReadonlyMap<string, unknown>): string | undefined {
  const said = { ...(detail as Record<string, Json>) };
  if (kind === 's' && Object.keys(said).length === 0) return undefined;
  if (profileId !== NIL_UUID && !names.has(profileId) && !(kind === 'i' && NAMELESS.has(said.change)))
    return undefined;
  for (const name of ['into', 'from'])
    if (kind === 'i' && typeof said[name] === 'string') said[name] = toServiceId(said[name]);
  return JSON.stringify(said);
}

function addressOf(detail: Json | undefined): string {
  const { email, phone } = detail as { email?: string; phone?: string };
  return email ?? phone ?? '';
}
