import { idBytes } from '../jobs/traces.ts';
import { NIL_UUID } from '../platform/ids.ts';
import { type Connection, iso, type Pool } from './database.ts';
import { isOf } from './one-workspace.ts';

/** The store's clock as SQL: ISO 8601 with microseconds, which a Date would cut off. */
export const storeClock = iso('clock_timestamp()', 'US');

/**
 * One row per envelope by primary key. Waits for another transaction that claims the same envelope, and then
 * does not return it. Ids are sorted by the caller: two workers claim in one order. The setting says that what is left
 * of a cut envelope will be asked for: the trigger keep_cut_envelopes refuses who does not say so.
 */
const claimEnvelopesStatement = `
  with claimed as (
    insert into ledger (workspace_id, envelope_id, requests)
    select given.workspace_id, given.envelope_id, given.requests
    from unnest($1::uuid[], $2::uuid[], $3::bytea[]) as given (workspace_id, envelope_id, requests)
    on conflict do nothing
    returning ledger.envelope_id
  )
  select
    coalesce((select array_agg(claimed.envelope_id::text) from claimed), '{}') as ids,
    set_config('penstock.parts', 'on', true) as parts,
    array(
      select distinct stream_destinations.workspace_id::text
      from stream_destinations
      where stream_destinations.workspace_id = any($4::uuid[])
    ) as streamed,
    ${storeClock} as now`;

/** In the place of a workspace: objects of several are in it. */
export const SHARED = NIL_UUID;

/** The key of what the store knows of an envelope. */
export interface EnvelopeKey {
  id: string;
  /** Whose all of its objects are; SHARED: they are of several workspaces. */
  workspaceId: string;
}

/** The table of the keys, from the parameters $1 and $2. */
const keysTable = 'unnest($1::uuid[], $2::uuid[]) as given (workspace_id, envelope_id)';

const keyValues = (keys: EnvelopeKey[]) => [
  keys.map(({ workspaceId }) => workspaceId),
  keys.map(({ id }) => id),
];

/**
 * Claims envelopes for the open transaction: those returned were never applied, and are once it commits.
 * `traces` are kept with them: which requests they carry.
 * `now` is the store's clock, the only one that orders what several workers write. `streamed` are those of the workspaces
 * that have a destination of streams.
 */
export async function claimEnvelopes(
  tx: Connection,
  envelopes: (EnvelopeKey & { traces: Buffer | undefined })[],
  workspaces: string[] = [],
): Promise<{ claimed: Set<string>; now: string; streamed: Set<string> }> {
  const sorted = [...envelopes].sort((one, other) => (one.id < other.id ? -1 : 1));
  const { rows } = await tx.query<{ ids: string[]; now: string; streamed: string[] }>({
    name: 'claim-envelopes',
    text: claimEnvelopesStatement,
    values: [...keyValues(sorted), sorted.map(({ traces }) => traces ?? null), workspaces],
  });
  const { ids, now, streamed } = rows[0]!;
  return { claimed: new Set(ids), now, streamed: new Set(streamed) };
}

/** An envelope of which a part is applied. */
export interface CutEnvelope extends EnvelopeKey {
  /** Places of the objects that are left; the others are done with. */
  left: number[];
}

/**
 * By primary key. Of its own: a claim that waited for another transaction sees nothing of what that one wrote. A worker
 * of an earlier release says of none whose it is.
 */
const selected = `
  select cut_envelopes.envelope_id::text as id, cut_envelopes.left_places as left
  from ${keysTable}
  join cut_envelopes
    on cut_envelopes.envelope_id = given.envelope_id and ${isOf('cut_envelopes', 'given')}`;

/** What earlier parts of these envelopes, which are claimed, have left; one that was never cut is missing. */
export async function readCutEnvelopes(
  tx: Connection,
  keys: EnvelopeKey[],
): Promise<Pick<CutEnvelope, 'id' | 'left'>[]> {
  const { rows } = await tx.query<Pick<CutEnvelope, 'id' | 'left'>>({
    name: 'read-cut-envelopes',
    text: selected,
    values: keyValues(keys),
  });
  return rows;
}

/** By primary key. */
const released = `
  delete from ledger using ${keysTable}
  where ledger.workspace_id = given.workspace_id and ledger.envelope_id = given.envelope_id`;

/** Upserts by primary key; sorted by the caller. */
const upserted = `
  insert into cut_envelopes (workspace_id, envelope_id, left_places, cut_at)
  select cut.workspace_id, cut.id, cut.left_places, now()
  from jsonb_to_recordset($1::jsonb) as cut (workspace_id uuid, id uuid, left_places integer[])
  on conflict (envelope_id) do update set left_places = excluded.left_places, cut_at = excluded.cut_at`;

/** Gives claimed envelopes back when the transaction ends: whoever claims them next goes on with them. */
export async function releaseEnvelopes(tx: Connection, keys: EnvelopeKey[]): Promise<void> {
  await tx.query({ name: 'release-envelopes', text: released, values: keyValues(keys) });
}

/** Notes what is left of envelopes of which a part is done. */
export async function cutEnvelopes(tx: Connection, cut: CutEnvelope[]): Promise<void> {
  const sorted = [...cut].sort((one, other) => (one.id < other.id ? -1 : 1));
  const rows = sorted.map(({ workspaceId, id, left }) => ({
    ...{ workspace_id: workspaceId, id, left_places: left },
  }));
  await tx.query({ name: 'cut-envelopes', text: upserted, values: [JSON.stringify(rows)] });
}

/** By primary key. */
const dropped = `
  delete from cut_envelopes using ${keysTable}
  where cut_envelopes.envelope_id = given.envelope_id and ${isOf('cut_envelopes', 'given')}`;

/** Forgets that envelopes were cut, once the ledger knows them. */
export async function dropCutEnvelopes(tx: Connection, keys: EnvelopeKey[]): Promise<void> {
  await tx.query({ name: 'drop-cut-envelopes', text: dropped, values: keyValues(keys) });
}

/**
 * By a range of the primary key: ids begin with their time. That of a replay may not, but it has one object, and is never
 * cut.
 */
const forgotten = `
  delete from cut_envelopes
  where cut_envelopes.envelope_id < uuid_v7_floor(now() - make_interval(days => $1::integer))`;

/** Forgets envelopes that were accepted more than `days` ago: the queue has lost what was left of them. */
export async function forgetCutEnvelopes(pool: Pool, days: number): Promise<void> {
  await pool.query(forgotten, [days]);
}

/** By a range of the primary key: envelope ids begin with their time. Locks nothing. */
const findTracesStatement = `
  select ledger.envelope_id as "envelopeId", ledger.requests as traces
  from ledger
  where ledger.envelope_id between $1::uuid and $2::uuid and position($3::bytea in ledger.requests) > 0`;

/** The applied envelopes with ids of the range that say anything of the request. */
export async function findTraces(
  pool: Pool,
  requestId: string,
  [from, to]: [string, string],
): Promise<{ envelopeId: string; traces: Buffer }[]> {
  const { rows } = await pool.query({
    name: 'find-traces',
    text: findTracesStatement,
    values: [from, to, idBytes(requestId)],
  });
  return rows;
}

/**
 * By two ranges of the ledger's primary key, whatever lies between them: envelope ids are UUIDv7 and begin with their
 * time. Those of replays are not: they are few, and of 100,000 one lies before tomorrow and not yet in the first range,
 * which comes to it. What a sync or an import has staged and not accounted for yet stays, however long that takes: it will
 * be handed over again.
 */
const forgetEnvelopesStatement = `
  delete from ledger
  where ledger.envelope_id in (
    select old.envelope_id
    from (
      select ledger.envelope_id, ledger.applied_at
      from ledger
      where ledger.envelope_id < uuid_v7_floor(now() - make_interval(days => $1::integer))
      union all
      select ledger.envelope_id, ledger.applied_at
      from ledger
      where ledger.envelope_id > uuid_v7_floor(now() + interval '1 day')
    ) as old
    where old.applied_at < now() - make_interval(days => $1::integer)
      and old.envelope_id not in (select unnest(sync_chunks.envelope_ids) from sync_chunks)
      and old.envelope_id not in (select unnest(imports.envelope_ids) from imports)
    limit 50000)`;

/** Forgets envelopes that were applied more than `days` ago, 50,000 at a time. */
export async function forgetEnvelopes(pool: Pool, days: number): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(forgetEnvelopesStatement, [days]));
  } while (deleted === 50_000);
}

/** By primary key; locks nothing. */
const readAppliedStatement = `
  select ledger.envelope_id::text as id
  from ledger
  where ledger.envelope_id = any($1::uuid[])`;

/** Those of the envelopes that have taken effect by now. */
export async function readApplied(pool: Pick<Pool, 'query'>, ids: string[]): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>({
    name: 'read-applied',
    text: readAppliedStatement,
    values: [ids],
  });
  return new Set(rows.map(({ id }) => id));
}

/** By primary key. */
const recordWholeStatement = `
  insert into ledger (workspace_id, envelope_id)
  select given.workspace_id, given.envelope_id
  from unnest($1::uuid[], $2::uuid[]) as given (workspace_id, envelope_id)
  on conflict do nothing`;

/** Says that envelopes have taken effect of which each workspace had its share: behind all of them. */
export async function recordWhole(pool: Pool, ids: string[]): Promise<void> {
  await pool.query({
    name: 'record-whole',
    text: recordWholeStatement,
    values: keyValues(ids.map((id) => ({ id, workspaceId: SHARED }))),
  });
}

/** By primary key; locks nothing. */
const readSharedStatement = `
  select ledger.envelope_id::text as id
  from ledger
  where ledger.workspace_id = $1::uuid and ledger.envelope_id = any($2::uuid[])`;

/**
 * Those of the envelopes that took effect as a whole, whosever their objects are: also while the tables lay on one
 * Postgres.
 */
export async function readAppliedWhole(pool: Pool, ids: string[]): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>({
    name: 'read-applied-whole',
    text: readSharedStatement,
    values: [SHARED, ids],
  });
  return new Set(rows.map(({ id }) => id));
}
