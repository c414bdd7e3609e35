import { idBytes } from '../jobs/traces.ts';
import type { Connection, Pool } from './database.ts';

/** The store's clock as SQL: ISO 8601 with microseconds, which a Date would cut off. */
export const storeClock = `to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/**
 * One row per envelope by primary key. Waits for another transaction that claims the same envelope, and then
 * does not return it. Ids are sorted by the caller: two workers claim in one order. The setting says that what is left
 * of a cut envelope will be asked for: the trigger keep_cut_envelopes refuses who does not say so.
 */
const claimEnvelopesStatement = `
  with claimed as (
    insert into ledger (envelope_id, requests)
    select given.envelope_id, given.requests
    from unnest($1::uuid[], $2::bytea[]) as given (envelope_id, requests)
    on conflict (envelope_id) do nothing
    returning ledger.envelope_id
  )
  select
    coalesce((select array_agg(claimed.envelope_id::text) from claimed), '{}') as ids,
    set_config('penstock.parts', 'on', true) as parts,
    array(
      select distinct stream_destinations.workspace_id::text
      from stream_destinations
      where stream_destinations.workspace_id = any($3::uuid[])
    ) as streamed,
    ${storeClock} as now`;

/**
 * Claims envelopes for the open transaction: those returned were never applied, and are once it commits.
 * `traces` are kept with them: which requests they carry.
 * `now` is the store's clock, the only one that orders what several workers write. `streamed` are those of the workspaces
 * that have a destination of streams.
 */
export async function claimEnvelopes(
  tx: Connection,
  envelopes: { id: string; traces: Buffer | undefined }[],
  workspaces: string[] = [],
): Promise<{ claimed: Set<string>; now: string; streamed: Set<string> }> {
  const sorted = [...envelopes].sort((one, other) => (one.id < other.id ? -1 : 1));
  const { rows } = await tx.query<{ ids: string[]; now: string; streamed: string[] }>({
    name: 'claim-envelopes',
    text: claimEnvelopesStatement,
    values: [sorted.map(({ id }) => id), sorted.map(({ traces }) => traces ?? null), workspaces],
  });
  const { ids, now, streamed } = rows[0]!;
  return { claimed: new Set(ids), now, streamed: new Set(streamed) };
}

/** An envelope of which a part is applied. */
export interface CutEnvelope {
  id: string;
  /** Places of the objects that are left; the others are done with. */
  left: number[];
}

/** By primary key. Of its own: a claim that waited for another transaction sees nothing of what that one wrote. */
const selected = `
  select cut_envelopes.envelope_id::text as id, cut_envelopes.left_places as left
  from cut_envelopes
  where cut_envelopes.envelope_id = any($1::uuid[])`;

/** What earlier parts of these envelopes, which are claimed, have left; one that was never cut is missing. */
export async function readCutEnvelopes(tx: Connection, ids: string[]): Promise<CutEnvelope[]> {
  const { rows } = await tx.query<CutEnvelope>({ name: 'read-cut-envelopes', text: selected, values: [ids] });
  return rows;
}

/** By primary key. */
const released = 'delete from ledger where ledger.envelope_id = any($1::uuid[])';

/** Upserts by primary key; sorted by the caller. */
const upserted = `
  insert into cut_envelopes (envelope_id, left_places, cut_at)
  select cut.id, cut.left_places, now()
  from jsonb_to_recordset($1::jsonb) as cut (id uuid, left_places integer[])
  on conflict (envelope_id) do update set left_places = excluded.left_places, cut_at = excluded.cut_at`;

/** Gives claimed envelopes back when the transaction ends: whoever claims them next goes on with them. */
export async function releaseEnvelopes(tx: Connection, ids: string[]): Promise<void> {
  await tx.query({ name: 'release-envelopes', text: released, values: [ids] });
}

/** Notes what is left of envelopes of which a part is done. */
export async function cutEnvelopes(tx: Connection, cut: CutEnvelope[]): Promise<void> {
  const sorted = [...cut].sort((one, other) => (one.id < other.id ? -1 : 1));
  await tx.query({
    name: 'cut-envelopes',
    text: upserted,
    values: [JSON.stringify(sorted.map(({ id, left }) => ({ id, left_places: left })))],
  });
}

/** By primary key. */
const dropped = 'delete from cut_envelopes where cut_envelopes.envelope_id = any($1::uuid[])';

/** Forgets that envelopes were cut, once the ledger knows them. */
export async function dropCutEnvelopes(tx: Connection, ids: string[]): Promise<void> {
  await tx.query({ name: 'drop-cut-envelopes', text: dropped, values: [ids] });
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
export async function readApplied(pool: Pool, ids: string[]): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>({
    name: 'read-applied',
    text: readAppliedStatement,
    values: [ids],
  });
  return new Set(rows.map(({ id }) => id));
}
