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
  type LogPosition,
  type Message,
  messageTypes,
  positionOf,
} from '../../src/streams/destination.ts';

/**
 * Maximum rows of the log that are read with one query, as long as all rows but the last have fewer entries
 * than are looked up together.
 */
const ROWS = 64;
const ENTRIES = 500;
/** Entries of a row that are looked up and cached together. */
const PART_ENTRIES = 250;

/**
 * Milliseconds for which messages are cached. Destinations of a workspace read the log at about the same
 * positions, so one of them can use what another has read. The time is short because a user may be deleted
 * meanwhile.
 */
const CACHE_MS = 1000;
const MAX_CACHE_BYTES = 33_554_432;
/** Memory of an entry or a message without its texts. */
const OVERHEAD_BYTES = 400;

/** The entries of a row from `first` up to but excluding `end`. */
export interface Part {
  row: LogRow;
  first: number;
  end: number;
}

/** The message of an entry, with the place of the entry in its row. */
export interface ReadMessage {
  row: LogRow;
  index: number;
  message: Message;
  /** The envelope as JSON, and its length in bytes. */
  envelope: string;
  bytes: number;
}

/** Reads the log and its messages for all destinations of a process. */
export interface Source {
  partEntries: number;
  /** Returns the next rows below the horizon; an empty list at the end. */
  rowsAfter(workspaceId: string, cursor: LogPosition, horizon: string): Promise<LogRow[]>;
  /**
   * Returns the messages of each part. Events and purchases are read from their tables in their current
   * state, so activity and attributes of deleted users are omitted.
   */
  messagesOf(workspaceId: string, parts: Part[]): Promise<ReadMessage[][]>;
  /**
   * Returns a source without a shared cache. Use it for reads beyond the horizon, where further rows may
   * still be inserted in between.
   */
  withoutSharing(): Source;
}

/** @param serviceIdField API name of the service id */
export function openSource(pool: Pool, serviceIdField: string): Source {
  const options = { maxSize: MAX_CACHE_BYTES, ttl: CACHE_MS };
  /** Cached rows by workspace and previous row. */
  const rows = new LRUCache<string, LogRow>({
    ...options,
    sizeCalculation: ({ ids, bytes }) => bytes + OVERHEAD_BYTES * (ids.length + 1),
  });
  /** Cached messages by workspace, row and first entry. */
  const cachedMessages = new LRUCache<string, ReadMessage[]>({
    ...options,
    sizeCalculation: (part) =>
      part.reduce((sum, { bytes }) => sum + 2 * bytes + OVERHEAD_BYTES, OVERHEAD_BYTES),
  });
  const inProgress = new Map<string, Promise<ReadMessage[]>>();

  /** Returns the cached rows after a position that another destination has read. */
  function follow(workspaceId: string, { position, place: index }: LogPosition): LogRow[] {
    const cachedRows: LogRow[] = [];
    let entries = -index;
    for (let row = rows.get(`${workspaceId}/${position}`); row; row = rows.get(`${workspaceId}/${row.id}`)) {
      cachedRows.push(row);
      entries += row.ids.length;
      if (entries >= ENTRIES || cachedRows.length === ROWS) break;
    }
    return cachedRows;
  }

  async function loadParts(workspaceId: string, parts: Part[]): Promise<ReadMessage[][]> {
    const [events, purchases]: [ActivityKey[], ActivityKey[]] = [[], []];
    const profiles = new Set<string>();
    for (const { row, first, end } of parts)
      for (let index = first; index < end; index++) {
        const profileId = row.profileIds[index]!;
        if (row.kinds[index] === 'e') events.push({ profileId, id: row.ids[index]! });
        if (row.kinds[index] === 'p') purchases.push({ profileId, id: row.ids[index]! });
        profiles.add(profileId);
      }
    profiles.delete(NIL_UUID);
    const [activity, names] = await Promise.all([
      readLoggedActivity(pool, workspaceId, { events, purchases }),
      readNames(pool, workspaceId, [...profiles]),
    ]);
    return parts.map(({ row, first, end }) => {
      const time = row.at.toISOString();
      const messages: ReadMessage[] = [];
      for (let index = first; index < end; index++) {
        const message = messageOf(row, index, { workspaceId, time, activity, names });
        if (!message) continue;
        const envelope = envelopeOf(message, serviceIdField);
        messages.push({ row, index, message, envelope, bytes: Buffer.byteLength(envelope) });
      }
      return messages;
    });
  }

  return {
    partEntries: PART_ENTRIES,
    withoutSharing: () => openSource(pool, serviceIdField),

    async rowsAfter(workspaceId, cursor, horizon) {
      const followed = follow(workspaceId, cursor);
      if (followed.length > 0) return followed;
      const { position, place: index } = cursor;
      const read = await readLog(pool, workspaceId, {
        ...{ after: position, horizon, limit: ROWS, entries: ENTRIES + index },
      });
      for (const row of read) rows.set(`${workspaceId}/${row.behind}`, row);
      return read;
    },

    async messagesOf(workspaceId, parts) {
      const missing: Part[] = [];
      const keys: string[] = [];
      let loaded: Promise<ReadMessage[][]> | undefined;
      const results = parts.map((part): Promise<ReadMessage[]> | ReadMessage[] => {
        const key = `${workspaceId}/${part.row.id}/${part.first}`;
        const there = cachedMessages.get(key) ?? inProgress.get(key);
        if (there) return there;
        const index = missing.push(part) - 1;
        keys.push(key);
        // Look up all missing parts with one query, after the list of them is complete.
        loaded ??= Promise.resolve().then(() => loadParts(workspaceId, missing));
        const coming = loaded.then((all) => all[index]!);
        inProgress.set(key, coming);
        return coming;
      });
      try {
        return await Promise.all(results);
      } finally {
        const messages = await loaded?.catch(() => undefined);
        for (const [index, key] of keys.entries()) {
          inProgress.delete(key);
          if (messages) cachedMessages.set(key, messages[index]!);
        }
      }
    },
  };
}

interface EntryData {
  workspaceId: string;
  time: string;
  /** Content as JSON by id. */
  activity: ReadonlyMap<string, string>;
  /** External ids by profile. Deleted profiles are missing. */
  names: ReadonlyMap<string, string | null>;
}

/** @returns undefined if the data of the entry was erased */
function messageOf(
  { id: row, kinds, profileIds, ids, details }: LogRow,
  index: number,
  { workspaceId, time, activity, names }: EntryData,
): Message | undefined {
  const kind = kinds[index] as keyof typeof messageTypes;
  const profileId = profileIds[index]!;
  const id = ids[index]!;
  const isActivity = kind === 'e' || kind === 'p';
  const detail = details?.[index];
  // The data of a deleted user may not be erased yet.
  const data = isActivity
    ? names.has(profileId) && activity.get(id)
    : dataOf({ kind, profileId, detail }, names);
  if (!data) return undefined;
  const head = { id, position: positionOf(row, index), type: messageTypes[kind], time, workspaceId };
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

/** Identity changes that are delivered for users who were deleted since, without their data. */
const NAMELESS = new Set<unknown>(['deleted', 'merged_into', 'merged']);

/**
 * @returns undefined for an erased entry, and for a user who was deleted since unless the entry is such a
 * change
 */
function dataOf({ kind, profileId, detail }: Entry, names: ReadonlyMap<string, unknown>): string | undefined {
  const content = { ...(detail as Record<string, Json>) };
  if (kind === 's' && Object.keys(content).length === 0) return undefined;
  if (profileId !== NIL_UUID && !names.has(profileId) && !(kind === 'i' && NAMELESS.has(content.change)))
    return undefined;
  for (const name of ['into', 'from'])
    if (kind === 'i' && typeof content[name] === 'string') content[name] = toServiceId(content[name]);
  return JSON.stringify(content);
}

function addressOf(detail: Json | undefined): string {
  const { email, phone } = detail as { email?: string; phone?: string };
  return email ?? phone ?? '';
}
