import type { Connection, Database, Pool } from './database.ts';
import { isDistributed } from './distributed.ts';
import { destinationLeases } from './stream-leases.ts';

/** Maximum number of destinations of a workspace. Each one reads the log separately. */
export const MAX_DESTINATIONS = 10;

type DestinationState = 'active' | 'paused';

/** A destination as shown to operators, without its secret. */
export interface DestinationRow {
  workspaceId: string;
  workspace: string;
  id: string;
  name: string;
  kind: string;
  settings: Record<string, unknown>;
  state: DestinationState;
  /** Milliseconds for which changes are gathered; 0: they are delivered immediately. */
  gatherMs: number;
  createdAt: Date;
  delivered: number;
  deliveredAt: Date | null;
  failures: number;
  lastError: string | null;
  failedAt: Date | null;
  nextTryAt: Date | null;
  lost: number;
  lostAt: Date | null;
  /** Age in seconds of the oldest undelivered change; 0 if everything is delivered. */
  lag: number;
}

/** SQL of the last id that was taken, visible or not. */
const lastId = '(select case when is_called then last_value else 0 end from stream_log_id)';

/**
 * Number of rows that are read to find the smallest id after a time. Transactions that began before a row and
 * took their id after it were open at the same time. This is the number of transactions that can be open at
 * once, with one row for each of their workspaces.
 */
const MAX_CONCURRENT_ROWS = 10_000;

/**
 * SQL of the position before the smallest id at or after time `$n`, by the index on the time. Times are taken
 * at the start of a transaction and ids at its end, so the first row by time need not be the first by id, and
 * an additional minute before it is delivered. Rows of other workspaces count as well, because an id is a
 * position in the whole log.
 */
const positionAt = (time: string) => `coalesce((
      select min(first.id) - 1
      from (
        select stream_log.id
        from stream_log
        where stream_log.at >= ${time}::timestamptz - interval '1 minute'
        order by stream_log.at
        limit ${MAX_CONCURRENT_ROWS}
      ) as first), ${lastId})`;

const createStatement = `
  insert into stream_destinations (workspace_id, id, name, kind, settings, secret, gather_ms, position)
  select
    $1::uuid, $2::uuid, $3::text, $4::text, $5::jsonb, $6::bytea, $7::integer,
    case when $8::timestamptz is null then ${lastId} else ${positionAt('$8')} end
  where (
    select count(*) from stream_destinations where stream_destinations.workspace_id = $1::uuid
  ) < ${MAX_DESTINATIONS}
  returning stream_destinations.id`;

interface NewDestination {
  workspaceId: string;
  id: string;
  name: string;
  kind: string;
  settings: object;
  secret: Buffer | null;
  /** Milliseconds for which changes are gathered. Absent: they are delivered immediately. */
  gatherMs?: number;
  /**
   * Starts with the changes at this time, or slightly earlier, as far as the log reaches back. Absent: starts
   * with new changes.
   */
  from?: Date | undefined;
}

/**
 * Creates a destination.
 *
 * @returns false if the workspace has the maximum number of destinations
 * @throws 23505 if the name is taken
 */
export async function createDestination(
  tx: Connection | Pool,
  destination: NewDestination,
): Promise<boolean> {
  const { workspaceId, id, name, kind, settings, secret, gatherMs = 0, from = null } = destination;
  const values = [workspaceId, id, name, kind, JSON.stringify(settings), secret, gatherMs, from];
  const { rowCount } = await tx.query({ name: 'create-destination', text: createStatement, values });
  return rowCount === 1;
}

/** Reads the oldest log row after each cursor by primary key. */
const listStatement = ({ ownerCondition, owner }: { ownerCondition: string; owner: string }) => `
  select
    stream_destinations.workspace_id::text as "workspaceId", workspaces.name as workspace,
    stream_destinations.id::text, stream_destinations.name, stream_destinations.kind,
    stream_destinations.settings, stream_destinations.state, stream_destinations.gather_ms as "gatherMs",
    stream_destinations.created_at as "createdAt", stream_destinations.delivered,
    stream_destinations.delivered_at as "deliveredAt", stream_destinations.failures,
    stream_destinations.last_error as "lastError", stream_destinations.failed_at as "failedAt",
    stream_destinations.next_try_at as "nextTryAt", stream_destinations.lost,
    stream_destinations.lost_at as "lostAt",
    coalesce((
      select extract(epoch from clock_timestamp() - stream_log.at)
      from stream_log
      where stream_log.workspace_id = ${owner}
        and stream_log.id > stream_destinations.position
      order by stream_log.id
      limit 1), 0)::double precision as lag
  from stream_destinations
  join workspaces on workspaces.id = stream_destinations.workspace_id
  where ${ownerCondition}
    and ($2::uuid is null or stream_destinations.id > $2::uuid)
  order by stream_destinations.id
  limit $3`;

const listAnyStatement = listStatement({
  ownerCondition: '($1::uuid is null or stream_destinations.workspace_id = $1::uuid)',
  owner: 'stream_destinations.workspace_id',
});

const listOfStatement = listStatement({
  ownerCondition: 'stream_destinations.workspace_id = $1::uuid',
  owner: '$1::uuid',
});

/** Variant for a distributed Postgres: the workspaces of a page's destinations. */
const ownersStatement = `
  select stream_destinations.workspace_id::text as owner
  from stream_destinations
  where $1::uuid is null or stream_destinations.id > $1::uuid
  order by stream_destinations.id
  limit $2`;

async function listByWorkspace(
  pool: Pool,
  {
    workspaceId,
    after = null,
    limit,
  }: { workspaceId?: string | undefined; after?: string | null; limit: number },
): Promise<DestinationRow[]> {
  const page = workspaceId
    ? [{ owner: workspaceId }]
    : (await pool.query<{ owner: string }>(ownersStatement, [after, limit])).rows;
  const listed: DestinationRow[] = [];
  for (const owner of new Set(page.map((one) => one.owner))) {
    const values = [owner, after, limit];
    const { rows } = await pool.query<DestinationRow>({
      name: 'list-destinations-of',
      text: listOfStatement,
      values,
    });
    listed.push(...rows);
  }
  return listed.sort((one, other) => (one.id < other.id ? -1 : 1)).slice(0, limit);
}

/** Returns destinations of a workspace, or of all workspaces, oldest first. */
export async function listDestinations(
  pool: Pool,
  { workspaceId, after, limit }: { workspaceId?: string | undefined; after?: string; limit: number },
): Promise<DestinationRow[]> {
  if (await isDistributed(pool))
    return listByWorkspace(pool, { workspaceId, limit, ...(after && { after }) });
  const { rows } = await pool.query<DestinationRow>({
    name: 'list-destinations',
    text: listAnyStatement,
    values: [workspaceId ?? null, after ?? null, limit],
  });
  return rows;
}

/** A destination of one of the workspaces. */
export async function findDestination(
  { pool, prisma }: Pick<Database, 'pool' | 'prisma'>,
  workspaceIds: readonly string[],
  id: string,
): Promise<DestinationRow | undefined> {
  const owner = await prisma.streamDestination.findFirst({
    where: { workspaceId: { in: [...workspaceIds] }, id },
    select: { workspaceId: true },
  });
  if (!owner) return undefined;
  const all = await listDestinations(pool, { workspaceId: owner.workspaceId, limit: MAX_DESTINATIONS });
  return all.find((one) => one.id === id);
}

/** Returns the secret as it is stored, encrypted. */
export async function readDestinationSecret(
  { prisma }: Pick<Database, 'prisma'>,
  { workspaceId, id }: { workspaceId: string; id: string },
): Promise<Buffer | null> {
  const row = await prisma.streamDestination.findUnique({
    where: { workspaceId_id: { workspaceId, id } },
    select: { secret: true },
  });
  return row?.secret ? Buffer.from(row.secret) : null;
}

const setStateStatement = `
  update stream_destinations
  set state = $3::text, failures = 0, next_try_at = null
  where stream_destinations.workspace_id = $1::uuid
    and stream_destinations.id = $2::uuid
    and stream_destinations.state <> $3::text`;

/**
 * Pauses or resumes a destination. A resumed one is tried immediately.
 *
 * @returns false if it already had this state
 */
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

/** @returns false if the destination did not exist */
export async function removeDestination(
  tx: Connection | Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
): Promise<boolean> {
  const values = [workspaceId, id];
  const { rowCount } = await tx.query({ name: 'remove-destination', text: removeStatement, values });
  return rowCount === 1;
}

const replayStatement = `
  update stream_destinations
  set
    position = ${positionAt('$3')},
    place = 0, planned_position = null, planned_place = null, file_hour = null,
    ${destinationLeases.clear}, failures = 0, next_try_at = null,
    lost = 0, lost_at = null
  where stream_destinations.workspace_id = $1::uuid and stream_destinations.id = $2::uuid`;

/**
 * Moves the cursor to the changes at a time, or slightly earlier. A process that is delivering loses its
 * lease and can no longer move the cursor.
 *
 * @returns false if the destination does not exist
 */
export async function replayFrom(
  tx: Connection | Pool,
  { workspaceId, id }: { workspaceId: string; id: string },
  at: Date,
): Promise<boolean> {
  const values = [workspaceId, id, at];
  const { rowCount } = await tx.query({ name: 'replay-destination', text: replayStatement, values });
  return rowCount === 1;
}

/** Reads a range of the index on the time. There are few destinations. */
const trimLogStatement = `
  with old as materialized (
    select stream_log.workspace_id, stream_log.id
    from stream_log
    where stream_log.at < now() - make_interval(days => $1)
    order by stream_log.at
    limit $2
  ), gone as (
    delete from stream_log using old
    where stream_log.workspace_id = old.workspace_id and stream_log.id = old.id
    returning stream_log.workspace_id, stream_log.id
  ), missed as (
    select stream_destinations.workspace_id, stream_destinations.id, count(*) as rows
    from gone
    join stream_destinations
      on stream_destinations.workspace_id = gone.workspace_id and stream_destinations.position < gone.id
    group by stream_destinations.workspace_id, stream_destinations.id
  ), marked as (
    update stream_destinations
    set lost = stream_destinations.lost + missed.rows, lost_at = now()
    from missed
    where stream_destinations.workspace_id = missed.workspace_id and stream_destinations.id = missed.id
    returning stream_destinations.id::text
  )
  select
    (select count(*) from gone) as gone,
    coalesce((select array_agg(marked.id) from marked), '{}') as lost`;

/**
 * Deletes a slice of the log rows that are older than `days`, and records for each destination how many it
 * has not received.
 */
export async function trimLog(
  pool: Pool,
  days: number,
  limit: number,
): Promise<{ gone: number; lost: string[] }> {
  const { rows } = await pool.query<{ gone: number; lost: string[] }>({
    text: trimLogStatement,
    values: [days, limit],
  });
  return rows[0]!;
}
