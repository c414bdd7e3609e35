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
 * Appends what a transaction has done in one workspace: its last statement, so that whoever waited for it to commit has the
 * later id.
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
  /** Behind which id it was looked for: there is none between. */
  behind: string;
  at: Date;
  kinds: string;
  profileIds: string[];
  ids: string[];
  details: Record<string, Json> | null;
  /** Of `details`, as JSON. */
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
 * By a range of the primary key. `kinds` has a letter an entry, and its length is known without it. What is large of a row
 * is fetched for those alone that are given.
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

/** The next rows that are decided, in their order: one, and more while those before have fewer than `entries`. */
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
 * What there is of entries, by their whole primary keys: with the ids alone each would cost a walk through all that the
 * workspace has. Under whom a row was written it stays, also when that user is merged. JSON texts, so that numbers stay
 * as they are.
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

/** Of an event or a purchase. */
export interface ActivityKey {
  profileId: string;
  id: string;
}

/** Events and purchases that are still there; those of deleted users are not. */
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

/** By the primary key of profiles. */
const readNamesStatement = `
  select profiles.id::text, profiles.external_id as "externalId"
  from unnest($2::uuid[]) as wanted (id)
  join profiles on profiles.workspace_id = $1::uuid and profiles.id = wanted.id`;

/** By the primary key of merged_profiles. */
const readMergedStatement = `
  select merged_profiles.profile_id::text as id
  from unnest($2::uuid[]) as wanted (id)
  join merged_profiles on merged_profiles.workspace_id = $1::uuid and merged_profiles.profile_id = wanted.id`;

/**
 * External ids by profile: null for one without, and for one that was merged, since another has its external id from then
 * on. A profile that was deleted is missing.
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
  // Merged between the two, it is found by the second.
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

/** Something that took effect. */
export interface StreamEntry {
  workspaceId: string;
  kind: StreamKind;
  /** `NIL_UUID` where it is about no single user. */
  profileId: string;
  /** Of the event or purchase, a UUID. Absent: it gets one of its own. */
  id?: string;
  /** Absent for events and purchases, which are read from their tables. */
  detail?: JsonText;
}

/** Entries of a round, about. */
const TYPICAL = 512;

/** The last 32 of an id's random bits. */
const LAST_WORD = 9;

/** Ids like one that was drawn, counted on in bits of it that are random. */
function drawIds(): { next(): UuidElements } {
  const drawn = elementsOf(uuidArray([newId()], String));
  return {
    next() {
      drawn[LAST_WORD]!++;
      return drawn;
    },
  };
}

/** What took effect in one workspace, in its order. By column: there are as many entries as objects. */
export class StreamEntries {
  readonly workspaceId: string;
  readonly #kinds: StreamKind[] = [];
  readonly #profileIds = uuidColumn(TYPICAL);
  readonly #ids = uuidColumn(TYPICAL);
  readonly #drawn = drawIds();
  /** Members of an object, in the order of the places that name them. */
  readonly #details: { place: number; detail: JsonText }[] = [];

  constructor(workspaceId: string) {
    this.workspaceId = workspaceId;
  }

  /** An event or a purchase, the one at the place. */
  addActivity(kind: 'e' | 'p', { profileIds, ids }: ActivityIds, place: number): void {
    this.#kinds.push(kind);
    this.#profileIds.addElement(profileIds, place);
    this.#ids.addElement(ids, place);
  }

  add({ kind, profileId, id, detail }: Omit<StreamEntry, 'workspaceId'>): void {
    if (detail !== undefined) this.#details.push({ place: this.#kinds.length, detail });
    this.#kinds.push(kind);
    this.#profileIds.addUuid(profileId);
    if (id === undefined) this.#ids.addElement(this.#drawn.next(), 0);
    else this.#ids.addUuid(id);
  }

  /** Those of one workspace behind each other. */
  static joined([first, ...others]: StreamEntries[]): StreamEntries {
    if (others.length === 0) return first!;
    const all = new StreamEntries(first!.workspaceId);
    for (const one of [first!, ...others]) all.#append(one);
    return all;
  }

  #append(next: StreamEntries): void {
    const before = this.#kinds.length;
    for (const { place, detail } of next.#details) this.#details.push({ place: before + place, detail });
    for (const kind of next.#kinds) this.#kinds.push(kind);
    this.#profileIds.addAll(next.#profileIds);
    this.#ids.addAll(next.#ids);
  }

  /** Parameters of the statement that appends them. */
  columns(): [kinds: string, profileIds: Buffer, ids: Buffer, details: string | null] {
    return [
      this.#kinds.join(''),
      this.#profileIds.toParameter(),
      this.#ids.toParameter(),
      this.#details.length > 0 ? this.#members() : null,
    ];
  }

  /** Put together from texts: the attributes of a user are one already. */
  #members(): string {
    let text = '';
    for (const { place, detail } of this.#details)
      text += `${text === '' ? '{' : ','}"${place}":${detail.text}`;
    return `${text}}`;
  }
}
