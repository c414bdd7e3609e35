import { newId } from '../platform/ids.ts';
import type { Json, JsonText } from '../profile/json.ts';
import { uuidArray } from './arrays.ts';
import { elementsOf, type UuidElements, uuidColumn } from './columns.ts';
import type { Connection, Pool } from './database.ts';
import type { ActivityIds } from './events.ts';

const appendLogStatement = `
  insert into stream_log (workspace_id, at, kinds, profile_ids, ids, details)
  values ($1::uuid, $2::timestamptz, $3::text, $4::uuid[], $5::uuid[], $6::json)`;

/**
 * Appends the entries of a transaction in one workspace. Must be its last statement, so that a transaction
 * that waited for its commit gets a later id.
 *
 * @param now the store's clock at the start of the batch
 */
export async function appendLog(tx: Connection, entries: StreamEntries, now: string): Promise<void> {
  await tx.query({
    name: 'append-stream-log',
    text: appendLogStatement,
    values: [entries.workspaceId, now, ...entries.columns()],
  });
}

export interface LogRow {
  id: string;
  /** Id of the previous row, or the start of the read. No row is between the two. */
  behind: string;
  at: Date;
  kinds: string;
  profileIds: string[];
  ids: string[];
  details: Record<string, Json> | null;
  /** Length of `details` as JSON. */
  bytes: number;
}

interface StoredRow {
  id: string;
  at: Date;
  kinds: string;
  profileIds: string;
  ids: string;
  details: string | null;
}

/**
 * Reads a range of the primary key. `kinds` has one letter per entry, and Postgres knows its length without
 * reading it. Large columns are only fetched for the returned rows.
 */
const readLogStatement = `
  select
    next.id::text, next.at, next.kinds, array_to_string(next.profile_ids, ',') as "profileIds",
    array_to_string(next.ids, ',') as ids, next.details::text as details
  from (
    select
      stream_log.*, sum(octet_length(stream_log.kinds)) over (order by stream_log.id) - octet_length(stream_log.kinds)
        as before
    from (
      select * from stream_log
      where stream_log.workspace_id = $1::uuid
        and stream_log.id > $2::bigint
        and stream_log.id <= $3::bigint
      order by stream_log.id
      limit $4
    ) as stream_log
  ) as next
  where next.before < $5::bigint
  order by next.id`;

/**
 * Returns the next rows up to the horizon, in order: at least one, and more while the previous ones have
 * fewer than `entries` entries.
 */
export async function readLog(
  pool: Pool,
  workspaceId: string,
  { after, horizon, limit, entries }: { after: string; horizon: string; limit: number; entries: number },
): Promise<LogRow[]> {
  const { rows } = await pool.query<StoredRow>({
    name: 'read-stream-log',
    text: readLogStatement,
    values: [workspaceId, after, horizon, limit, entries],
  });
  return rows.map(({ id, at, kinds, profileIds, ids, details }, index) => ({
    ...{ id, behind: rows[index - 1]?.id ?? after, at, kinds },
    ...{ profileIds: profileIds.split(','), ids: ids.split(',') },
    ...{ details: details === null ? null : JSON.parse(details), bytes: details?.length ?? 0 },
  }));
}

/**
 * Reads data of entries by their complete primary keys; by id alone, each entry would cost a scan of the
 * workspace's rows. Rows stay under the profile for which they were written, even after a merge. Returned as
 * JSON text, so that numbers are unchanged.
 */
const readActivityStatement = `
  select events.id::text, json_build_object(
    'name', events.name, 'time', events."time", 'app_id', events.app_id, 'properties', events.properties)::text as data
  from unnest($2::uuid[], $3::uuid[]) as wanted (profile_id, id)
  join events
    on events.workspace_id = $1::uuid and events.profile_id = wanted.profile_id and events.id = wanted.id
  union all
  select purchases.id::text, json_build_object(
    'product_id', purchases.product_id, 'currency', purchases.currency, 'price', purchases.price,
    'quantity', purchases.quantity, 'time', purchases."time", 'app_id', purchases.app_id,
    'properties', purchases.properties)::text
  from unnest($4::uuid[], $5::uuid[]) as wanted (profile_id, id)
  join purchases
    on purchases.workspace_id = $1::uuid and purchases.profile_id = wanted.profile_id and purchases.id = wanted.id`;

/** Key of an event or a purchase. */
export interface ActivityKey {
  profileId: string;
  id: string;
}

/** Returns the events and purchases that still exist. Those of deleted users do not. */
export async function readLoggedActivity(
  pool: Pool,
  workspaceId: string,
  { events, purchases }: { events: ActivityKey[]; purchases: ActivityKey[] },
): Promise<Map<string, string>> {
  const columns = (keys: ActivityKey[]) => [
    uuidArray(keys, ({ profileId }) => profileId),
    uuidArray(keys, ({ id }) => id),
  ];
  const { rows } = await pool.query<{ id: string; data: string }>({
    name: 'read-stream-activity',
    text: readActivityStatement,
    values: [workspaceId, ...columns(events), ...columns(purchases)],
  });
  return new Map(rows.map(({ id, data }) => [id, data]));
}

/** Reads by the primary key of profiles. */
const readNamesStatement = `
  select profiles.id::text, profiles.external_id as "externalId"
  from unnest($2::uuid[]) as wanted (id)
  join profiles on profiles.workspace_id = $1::uuid and profiles.id = wanted.id`;

/** Reads by the primary key of merged_profiles. */
const readMergedStatement = `
  select merged_profiles.profile_id::text as id
  from unnest($2::uuid[]) as wanted (id)
  join merged_profiles on merged_profiles.workspace_id = $1::uuid and merged_profiles.profile_id = wanted.id`;

/**
 * Returns external ids by profile. Null for a profile without an external id, and for a merged profile, whose
 * external id now belongs to another. Deleted profiles are omitted.
 */
export async function readNames(
  pool: Pool,
  workspaceId: string,
  profileIds: string[],
): Promise<Map<string, string | null>> {
  const { rows } = await pool.query<{ id: string; externalId: string | null }>({
    name: 'read-stream-names',
    text: readNamesStatement,
    values: [workspaceId, profileIds],
  });
  const names = new Map(rows.map(({ id, externalId }) => [id, externalId]));
  const missing = profileIds.filter((id) => !names.has(id));
  if (missing.length === 0) return names;
  // A profile that was merged between the two queries is found by this one.
  const merged = await pool.query<{ id: string }>({
    name: 'read-stream-merged',
    text: readMergedStatement,
    values: [workspaceId, missing],
  });
  for (const { id } of merged.rows) names.set(id, null);
  return names;
}

/** Event, purchase, attributes, subscription, identity. */
type StreamKind = 'e' | 'p' | 'a' | 's' | 'i';

/** A change that was applied. */
export interface StreamEntry {
  workspaceId: string;
  kind: StreamKind;
  /** `NIL_UUID` if the change does not concern a single user. */
  profileId: string;
  /** UUID of the event or purchase. Absent: a new id is assigned. */
  id?: string;
  /** Absent for events and purchases, which are read from their tables. */
  detail?: JsonText;
}

/** Typical number of entries in a batch. */
const TYPICAL = 512;

/** Index of the word with the last 32 of an id's random bits. */
const LAST_WORD = 9;

/** Returns a generator of ids. The first one is random; the next ones increment its random bits. */
function createIds(): { next(): UuidElements } {
  const id = elementsOf(uuidArray([newId()], String));
  return {
    next() {
      id[LAST_WORD]!++;
      return id;
    },
  };
}

/**
 * Applied changes of one workspace, in order. Stored by column, because there are as many entries as objects.
 */
export class StreamEntries {
  readonly workspaceId: string;
  readonly #kinds: StreamKind[] = [];
  readonly #profileIds = uuidColumn(TYPICAL);
  readonly #ids = uuidColumn(TYPICAL);
  readonly #newIds = createIds();
  /** Details with the position of their entry, in ascending order. */
  readonly #details: { index: number; detail: JsonText }[] = [];

  constructor(workspaceId: string) {
    this.workspaceId = workspaceId;
  }

  /** Adds an event or a purchase: the element at `index` of the given ids. */
  addActivity(kind: 'e' | 'p', { profileIds, ids }: ActivityIds, index: number): void {
    this.#kinds.push(kind);
    this.#profileIds.addElement(profileIds, index);
    this.#ids.addElement(ids, index);
  }

  add({ kind, profileId, id, detail }: Omit<StreamEntry, 'workspaceId'>): void {
    if (detail !== undefined) this.#details.push({ index: this.#kinds.length, detail });
    this.#kinds.push(kind);
    this.#profileIds.addUuid(profileId);
    if (id === undefined) this.#ids.addElement(this.#newIds.next(), 0);
    else this.#ids.addUuid(id);
  }

  /** Concatenates entries of one workspace. */
  static joined([first, ...others]: StreamEntries[]): StreamEntries {
    if (others.length === 0) return first!;
    const all = new StreamEntries(first!.workspaceId);
    for (const one of [first!, ...others]) all.#append(one);
    return all;
  }

  #append(next: StreamEntries): void {
    const before = this.#kinds.length;
    for (const { index, detail } of next.#details) this.#details.push({ index: before + index, detail });
    for (const kind of next.#kinds) this.#kinds.push(kind);
    this.#profileIds.addAll(next.#profileIds);
    this.#ids.addAll(next.#ids);
  }

  /** Returns the parameters of the statement that appends the entries. */
  columns(): [kinds: string, profileIds: Buffer, ids: Buffer, details: string | null] {
    return [
      this.#kinds.join(''),
      this.#profileIds.toParameter(),
      this.#ids.toParameter(),
      this.#details.length > 0 ? this.#detailsJson() : null,
    ];
  }

  /** Builds the JSON from texts, since attributes of a user are already serialized. */
  #detailsJson(): string {
    let text = '';
    for (const { index, detail } of this.#details)
      text += `${text === '' ? '{' : ','}"${index}":${detail.text}`;
    return `${text}}`;
  }
}
