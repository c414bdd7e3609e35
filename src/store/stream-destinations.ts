import type { Connection, Pool } from './database.ts';

/** Destinations of one workspace: each costs as much reading as the first. */
export const MAX_DESTINATIONS = 10;

export type DestinationState = 'active' | 'paused';

/** A destination as people see it; it has no secret. */
export interface DestinationRow {
  workspaceId: string;
  workspace: string;
  id: string;
  name: string;
  kind: string;
  settings: Record<string, unknown>;
  state: DestinationState;
  createdAt: Date;
  delivered: number;
  deliveredAt: Date | null;
  failures: number;
  lastError: string | null;
  failedAt: Date | null;
  nextTryAt: Date | null;
  lost: number;
  lostAt: Date | null;
  /** Seconds since the oldest thing that is not delivered took effect; 0: all is delivered. */
  lag: number;
}

/** The last id that was taken, whether it is visible or not. */
const lastId = '(select case when is_called then last_value else 0 end from stream_log_id)';

const createStatement = `
  insert into stream_destinations (workspace_id, id, name, kind, settings, secret, position)
  select $1::uuid, $2::uuid, $3::text, $4::text, $5::jsonb, $6::bytea, ${lastId}
  where (
    select count(*) from stream_destinations where stream_destinations.workspace_id = $1::uuid
  ) < ${MAX_DESTINATIONS}
  returning stream_destinations.id`;

export interface NewDestination {
  workspaceId: string;
  id: string;
  name: string;
  kind: string;
  settings: object;
  secret: Buffer | null;
}

/**
 * Begins with what takes effect from now on.
 * @returns false when the workspace has as many as it may have
 * @throws 23505 when the name is taken
 */
export async function createDestination(tx: Connection | Pool, made: NewDestination): Promise<boolean> {
  const { workspaceId, id, name, kind, settings, secret } = made;
  const values = [workspaceId, id, name, kind, JSON.stringify(settings), secret];
  const { rowCount } = await tx.query({ name: 'create-destination', text: createStatement, values });
  return rowCount === 1;
}

/** The oldest row of the log behind each cursor, by primary key. */
const listStatement = `
  select
    stream_destinations.workspace_id::text as "workspaceId", workspaces.name as workspace,
    stream_destinations.id::text, stream_destinations.name, stream_destinations.kind,
    stream_destinations.settings, stream_destinations.state,
    stream_destinations.created_at as "createdAt", stream_destinations.delivered,
    stream_destinations.delivered_at as "deliveredAt", stream_destinations.failures,
    stream_destinations.last_error as "lastError", stream_destinations.failed_at as "failedAt",
    stream_destinations.next_try_at as "nextTryAt", stream_destinations.lost,
    stream_destinations.lost_at as "lostAt",
    coalesce((
      select extract(epoch from clock_timestamp() - stream_log.at)
      from stream_log
      where stream_log.workspace_id = stream_destinations.workspace_id
        and stream_log.id > stream_destinations.position
      order by stream_log.id
      limit 1), 0)::double precision as lag
  from stream_destinations
  join workspaces on workspaces.id = stream_destinations.workspace_id
  where ($1::uuid is null or stream_destinations.workspace_id = $1::uuid)
    and ($2::uuid is null or stream_destinations.id > $2::uuid)
  order by stream_destinations.id
  limit $3`;

/** Destinations of a workspace, or of all, the oldest first. */
export async function listDestinations(
  pool: Pool,
  { workspaceId, after, limit }: { workspaceId?: string | undefined; after?: string; limit: number },
): Promise<DestinationRow[]> {
  const { rows } = await pool.query<DestinationRow>({
    name: 'list-destinations',
    text: listStatement,
    values: [workspaceId ?? null, after ?? null, limit],
  });
  return rows;
}

const readSecretStatement = `
  select stream_destinations.secret
  from stream_destinations
  where stream_destinations.workspace_id = $1::uuid and stream_destinations.id = $2::uuid`;

/** Encrypted, as it is stored. */
export async function readDestinationSecret(
  pool: Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
): Promise<Buffer | null> {
  const values = [workspaceId, id];
  const { rows } = await pool.query({ name: 'read-destination-secret', text: readSecretStatement, values });
  return rows[0]?.secret ?? null;
}

const setStateStatement = `
  update stream_destinations
  set state = $3::text, failures = 0, next_try_at = null
  where stream_destinations.workspace_id = $1::uuid
    and stream_destinations.id = $2::uuid
    and stream_destinations.state <> $3::text`;

/** A resumed destination is tried at once. @returns whether it was otherwise before */
export async function setDestinationState(
  tx: Connection | Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
  state: DestinationState,
): Promise<boolean> {
  const values = [workspaceId, id, state];
  const { rowCount } = await tx.query({ name: 'set-destination-state', text: setStateStatement, values });
  return rowCount === 1;
}

const removeStatement = `
  delete from stream_destinations
  where stream_destinations.workspace_id = $1::uuid and stream_destinations.id = $2::uuid`;

export async function removeDestination(
  tx: Connection | Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
): Promise<void> {
  await tx.query({ name: 'remove-destination', text: removeStatement, values: [workspaceId, id] });
}

/**
 * More than the transactions that can be under way at once. All that began before a row, and took their ids behind it,
 * were under way with it: so the smallest id is among so many by time.
 */
const MOST_AT_ONCE = 1000;

/**
 * The smallest id at or behind the time, by the index on the time; what is of other workspaces is looked past. Ids are
 * taken at the end of a transaction and times at its beginning: the first by time need not be the first by id, and a
 * minute before it is delivered again as well.
 */
const replayStatement = `
  update stream_destinations
  set
    position = coalesce((
      select min(first.id) - 1
      from (
        select stream_log.id
        from stream_log
        where stream_log.workspace_id = $1::uuid and stream_log.at >= $3::timestamptz - interval '1 minute'
        order by stream_log.at
        limit ${MOST_AT_ONCE}
      ) as first), ${lastId}),
    place = 0, leased_by = null, leased_until = null, failures = 0, next_try_at = null,
    lost = 0, lost_at = null
  where stream_destinations.workspace_id = $1::uuid and stream_destinations.id = $2::uuid`;

/**
 * Sets the cursor back, or ahead, to what took effect at a time, or a little before. Who delivers just now loses its
 * lease, and with it the right to move the cursor.
 */
export async function replayFrom(
  tx: Connection | Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
  at: Date,
): Promise<void> {
  const values = [workspaceId, id, at];
  await tx.query({ name: 'replay-destination', text: replayStatement, values });
}

/** Whose turn it is. A lease is not a process: the cursor may have been set back under one that the process has lost. */
export interface Lease {
  /** Of this lease alone. */
  lease: string;
  workspaceId: string;
  id: string;
}

/** What a process needs for delivering. */
export interface LeasedDestination extends Lease {
  /** Its name. */
  workspace: string;
  name: string;
  kind: string;
  settings: Record<string, unknown>;
  secret: Buffer | null;
  position: string;
  place: number;
  failures: number;
}

/** The destinations of an installation are few, and all of them are looked at. */
const leaseStatement = `
  with free as (
    select stream_destinations.workspace_id, stream_destinations.id
    from stream_destinations
    where stream_destinations.state = 'active'
      and (stream_destinations.leased_until is null or stream_destinations.leased_until < clock_timestamp())
      and (stream_destinations.next_try_at is null or stream_destinations.next_try_at < clock_timestamp())
      and (stream_destinations.failures > 0 or exists (
        select from stream_log
        where stream_log.workspace_id = stream_destinations.workspace_id
          and stream_log.id > stream_destinations.position))
    order by stream_destinations.leased_until nulls first
    limit $2
    for update skip locked
  )
  update stream_destinations
  set leased_by = gen_random_uuid(), leased_until = clock_timestamp() + $1::integer * interval '1 millisecond'
  from free
  join workspaces on workspaces.id = free.workspace_id
  where stream_destinations.workspace_id = free.workspace_id and stream_destinations.id = free.id
  returning
    stream_destinations.leased_by::text as lease,
    stream_destinations.workspace_id::text as "workspaceId", stream_destinations.id::text,
    stream_destinations.name, stream_destinations.kind, stream_destinations.settings,
    stream_destinations.secret, stream_destinations.position::text, stream_destinations.place,
    stream_destinations.failures, workspaces.name as workspace`;

/**
 * Leases: for so many milliseconds nobody else delivers. Only those are given that have something to be delivered, first
 * who has waited longest since its last one.
 */
export async function leaseDestinations(
  pool: Pool,
  { milliseconds, limit }: { milliseconds: number; limit: number },
): Promise<LeasedDestination[]> {
  const { rows } = await pool.query<LeasedDestination>({
    name: 'lease-destinations',
    text: leaseStatement,
    values: [milliseconds, limit],
  });
  return rows;
}

const mine = `
  where stream_destinations.workspace_id = $2::uuid
    and stream_destinations.id = $3::uuid
    and stream_destinations.leased_by = $1::uuid
    and stream_destinations.state = 'active'`;

const advanceStatement = `
  update stream_destinations
  set
    position = $4::bigint, place = $5::integer, delivered = stream_destinations.delivered + $6::integer,
    delivered_at = now(), failures = 0, last_error = null, failed_at = null, next_try_at = null,
    leased_until = statement_timestamp() + $7::integer * interval '1 millisecond'
  ${mine}`;

/** Moves the cursor behind what was delivered, and keeps the lease. @returns false when the lease is gone, or it is paused */
export async function advanceDestination(
  pool: Pool,
  { lease, workspaceId, id }: Lease,
  moved: { position: string; place: number; delivered: number; milliseconds: number },
): Promise<boolean> {
  const { position, place, delivered, milliseconds } = moved;
  const values = [lease, workspaceId, id, position, place, delivered, milliseconds];
  const { rowCount } = await pool.query({ name: 'advance-destination', text: advanceStatement, values });
  return rowCount === 1;
}

const giveBackStatement = `
  update stream_destinations
  set
    leased_by = null, leased_until = statement_timestamp(),
    failures = case when $4::text is null then stream_destinations.failures else stream_destinations.failures + 1 end,
    last_error = coalesce($4::text, stream_destinations.last_error),
    failed_at = greatest(stream_destinations.failed_at, now() + case when $4::text is not null then interval '0' end),
    next_try_at = statement_timestamp()
      + case when $4::text is not null then $5::integer * interval '1 millisecond' end,
    state = case when $6::boolean then 'paused' else stream_destinations.state end
  ${mine}`;

/** Gives a lease back, behind everybody who waits: all is delivered, or with an error and when the next try is due. `pause`: none is, until resumed. */
export async function giveBackDestination(
  pool: Pool,
  { lease, workspaceId, id }: Lease,
  failure?: { error: string; retryMs: number; pause: boolean },
): Promise<void> {
  const { error = null, retryMs = 0, pause = false } = failure ?? {};
  await pool.query({
    name: 'give-back-destination',
    text: giveBackStatement,
    values: [lease, workspaceId, id, error, retryMs, pause],
  });
}
