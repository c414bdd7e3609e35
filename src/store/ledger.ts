import { idBytes } from '../jobs/traces.ts';
import { NIL_UUID } from '../platform/ids.ts';
import { type Connection, iso, type Pool } from './database.ts';
import { isOf, withCitusForm } from './one-workspace.ts';

/** SQL of the store's clock: ISO 8601 with microseconds, which a Date would truncate. */
export const storeClock = iso('clock_timestamp()', 'US');

/**
 * Inserts one row per envelope by primary key. Waits for another transaction that is claiming the same
 * envelope; if that one commits, the envelope is not returned. The caller sorts the ids, so that two workers
 * claim in the same order. The setting declares that the worker reads the remaining objects of cut envelopes:
 * the trigger keep_cut_envelopes rejects a worker that does not set it.
 */
const claimEnvelopesStatement = withCitusForm(`
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
    ${storeClock} as now`);

/** Workspace id of an envelope that has objects of several workspaces. */
export const SHARED = NIL_UUID;

/** Key of an envelope in the ledger and in `cut_envelopes`. */
export interface EnvelopeKey {
  id: string;
  /** Workspace of all objects of the envelope, or SHARED if they belong to several workspaces. */
  workspaceId: string;
}

/** Set of keys from the parameters $1 and $2. */
const keysTable = 'unnest($1::uuid[], $2::uuid[]) as given (workspace_id, envelope_id)';

const keyValues = (keys: EnvelopeKey[]) => [
  keys.map(({ workspaceId }) => workspaceId),
  keys.map(({ id }) => id),
];

/**
 * Claims envelopes for the open transaction. The returned envelopes have never been applied, and count as
 * applied once the transaction commits. `traces` are stored with them and list the requests that they carry.
 *
 * @returns `now` is the store's clock, which orders everything that several workers write. `streamed` are
 * those of the given workspaces that have a stream destination.
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

/** An envelope that is partly applied. */
export interface CutEnvelope extends EnvelopeKey {
  /** Indexes of the objects that are still to be applied. */
  left: number[];
}

/**
 * Reads by primary key. A separate statement, because a claim that waited for another transaction does not
 * see what that transaction wrote. Workers of earlier releases store no workspace.
 */
const readCutStatement = withCitusForm(`
  select cut_envelopes.envelope_id::text as id, cut_envelopes.left_places as left
  from ${keysTable}
  join cut_envelopes
    on cut_envelopes.envelope_id = given.envelope_id and ${isOf('cut_envelopes', 'given')}`);

/** Returns the remaining objects of claimed envelopes. Envelopes that were never cut are omitted. */
export async function readCutEnvelopes(
  tx: Connection,
  keys: EnvelopeKey[],
): Promise<Pick<CutEnvelope, 'id' | 'left'>[]> {
  const { rows } = await tx.query<Pick<CutEnvelope, 'id' | 'left'>>({
    name: 'read-cut-envelopes',
    text: readCutStatement,
    values: keyValues(keys),
  });
  return rows;
}

/** Reads by primary key; takes no lock. */
const countLeftStatement = `
  select cut_envelopes.envelope_id::text as id, cardinality(cut_envelopes.left_places) as left
  from cut_envelopes
  where cut_envelopes.workspace_id = any($1::uuid[]) and cut_envelopes.envelope_id = any($2::uuid[])`;

/**
 * Returns the number of remaining objects of envelopes, by envelope id. Envelopes that were never cut, or are completely
 * applied, are omitted.
 */
export async function countLeftObjects(pool: Pool, keys: EnvelopeKey[]): Promise<Map<string, number>> {
  const { rows } = await pool.query<{ id: string; left: number }>({
    name: 'count-left-objects',
    text: countLeftStatement,
    values: keyValues(keys),
  });
  return new Map(rows.map(({ id, left }) => [id, left]));
}

/** Deletes by primary key. */
const releaseStatement = withCitusForm(`
  delete from ledger using ${keysTable}
  where ledger.workspace_id = given.workspace_id and ledger.envelope_id = given.envelope_id`);

/** Upserts by primary key; the caller sorts the rows. */
const cutStatement = withCitusForm(`
  insert into cut_envelopes (workspace_id, envelope_id, left_places, cut_at)
  select cut.workspace_id, cut.id, cut.left_places, now()
  from jsonb_to_recordset($1::jsonb) as cut (workspace_id uuid, id uuid, left_places integer[])
  on conflict (envelope_id) do update set left_places = excluded.left_places, cut_at = excluded.cut_at`);

/**
 * Releases claimed envelopes when the transaction commits, so that the next worker that claims them applies
 * their remaining objects.
 */
export async function releaseEnvelopes(tx: Connection, keys: EnvelopeKey[]): Promise<void> {
  await tx.query({ name: 'release-envelopes', text: releaseStatement, values: keyValues(keys) });
}

/** Records the remaining objects of partly applied envelopes. */
export async function cutEnvelopes(tx: Connection, cut: CutEnvelope[]): Promise<void> {
  const sorted = [...cut].sort((one, other) => (one.id < other.id ? -1 : 1));
  const rows = sorted.map(({ workspaceId, id, left }) => ({
    ...{ workspace_id: workspaceId, id, left_places: left },
  }));
  await tx.query({ name: 'cut-envelopes', text: cutStatement, values: [JSON.stringify(rows)] });
}

/** Deletes by primary key. */
const dropCutStatement = withCitusForm(`
  delete from cut_envelopes using ${keysTable}
  where cut_envelopes.envelope_id = given.envelope_id and ${isOf('cut_envelopes', 'given')}`);

/** Deletes the records of cut envelopes that are now completely applied. */
export async function dropCutEnvelopes(tx: Connection, keys: EnvelopeKey[]): Promise<void> {
  await tx.query({ name: 'drop-cut-envelopes', text: dropCutStatement, values: keyValues(keys) });
}

/**
 * Deletes a range of the primary key, because envelope ids start with their time. The id of a replay may not,
 * but a replay has one object and is never cut.
 */
const forgetCutStatement = `
  delete from cut_envelopes
  where cut_envelopes.envelope_id < uuid_v7_floor(now() - make_interval(days => $1::integer))`;

/**
 * Deletes records of cut envelopes that were accepted more than `days` ago. The queue has lost their
 * remaining objects.
 */
export async function forgetCutEnvelopes(pool: Pool, days: number): Promise<void> {
  await pool.query(forgetCutStatement, [days]);
}

/** Reads a range of the primary key, because envelope ids start with their time. Takes no lock. */
const findTracesStatement = `
  select ledger.envelope_id as "envelopeId", ledger.requests as traces
  from ledger
  where ledger.envelope_id between $1::uuid and $2::uuid and position($3::bytea in ledger.requests) > 0`;

/** Returns the applied envelopes within an id range whose traces mention the request. */
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

/** Reads the primary key backwards, because envelope ids start with their time. Takes no lock. */
const latestTracesStatement = `
  select count(*)::integer as read, min(latest.envelope_id::text) as last,
    coalesce(array_agg(latest.requests) filter (where latest.is_wanted), '{}') as traces
  from (
    select ledger.envelope_id, ledger.requests,
      position($2::bytea in ledger.requests) > 0 and (
        $4::bytea[] is null
        or exists (select from unnest($4::bytea[]) as parts (part) where position(parts.part in ledger.requests) > 0)
      ) as is_wanted
    from ledger
    where ledger.envelope_id < $1::uuid
    order by ledger.envelope_id desc
    limit $3::integer
  ) as latest`;

/** A part of the ledger, read backwards. */
export interface LatestTraces {
  /** Number of envelopes that were read. Fewer than the limit at the end of the ledger. */
  read: number;
  /** Id of the oldest of them. Null if the ledger has no such envelope. */
  last: string | null;
  /** Traces of those envelopes that are wanted, in any order. */
  traces: Buffer[];
}

/**
 * Reads the applied envelopes before an id, latest first. Returns the traces of those with requests of the workspace.
 *
 * @param place.parts bytes of which the traces must contain at least one; absent: any traces
 */
export async function readLatestTraces(
  pool: Pool,
  {
    workspaceId,
    before,
    limit,
    parts,
  }: { workspaceId: string; before: string; limit: number; parts?: readonly Buffer[] | undefined },
): Promise<LatestTraces> {
  const { rows } = await pool.query<LatestTraces>({
    name: 'read-latest-traces',
    text: latestTracesStatement,
    values: [before, idBytes(workspaceId), limit, parts ?? null],
  });
  return rows[0]!;
}

/**
 * Deletes from two ranges of the ledger's primary key. Envelope ids are UUIDv7 and start with their time. Ids
 * of replays are random: only about one in 100,000 falls between the ranges, and the first range reaches it
 * later. Envelopes that a sync or an import has staged and not yet accounted for are kept, however long that
 * takes, because they will be enqueued again.
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

/** Deletes ledger rows of envelopes that were applied more than `days` ago, in slices of 50,000. */
export async function forgetEnvelopes(pool: Pool, days: number): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(forgetEnvelopesStatement, [days]));
  } while (deleted === 50_000);
}

/** Reads by primary key; takes no lock. */
const readAppliedStatement = `
  select ledger.envelope_id::text as id
  from ledger
  where ledger.envelope_id = any($1::uuid[])`;

/**
 * Returns those of the envelopes that have been applied.
 *
 * @param timeout maximum milliseconds to wait for the answer; absent: as the pool waits
 */
export async function readApplied(
  pool: Pick<Pool, 'query'>,
  ids: string[],
  { timeout }: { timeout?: number } = {},
): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>({
    ...{ name: 'read-applied', text: readAppliedStatement, values: [ids] },
    ...(timeout && { query_timeout: timeout }),
  });
  return new Set(rows.map(({ id }) => id));
}

/** Inserts by primary key. */
const recordWholeStatement = withCitusForm(`
  insert into ledger (workspace_id, envelope_id)
  select given.workspace_id, given.envelope_id
  from unnest($1::uuid[], $2::uuid[]) as given (workspace_id, envelope_id)
  on conflict do nothing`);

/** Records that all parts of shared envelopes have been applied. Called after the parts of all workspaces. */
export async function recordWhole(pool: Pool, ids: string[]): Promise<void> {
  await pool.query({
    name: 'record-whole',
    text: recordWholeStatement,
    values: keyValues(ids.map((id) => ({ id, workspaceId: SHARED }))),
  });
}

/** Reads by primary key; takes no lock. */
const readSharedStatement = `
  select ledger.envelope_id::text as id
  from ledger
  where ledger.workspace_id = $1::uuid and ledger.envelope_id = any($2::uuid[])`;

/**
 * Returns the shared envelopes that were applied as a whole. Includes envelopes that were applied before the
 * tables were distributed.
 */
export async function readAppliedWhole(pool: Pool, ids: string[]): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>({
    name: 'read-applied-whole',
    text: readSharedStatement,
    values: [SHARED, ids],
  });
  return new Set(rows.map(({ id }) => id));
}
