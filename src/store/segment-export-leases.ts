import type { Pool } from './database.ts';
import { isDistributed, WORKSPACES } from './distributed.ts';
import type { ExportCounts, NewSegmentExport } from './segment-exports.ts';

/** A leased export with everything that is needed to write it or to call its callback. */
export interface LeasedExport extends NewSegmentExport {
  tries: number;
  lastError: string | null;
  requestedAt: Date;
  endedAt: Date | null;
}

const leasedColumns = `
    segment_exports.workspace_id::text as "workspaceId", segment_exports.id::text,
    segment_exports.segment_id::text as "segmentId", segment_exports.object_prefix as "objectPrefix",
    segment_exports.fields, segment_exports.attributes, segment_exports.output_format as "outputFormat",
    segment_exports.url, segment_exports.callback, segment_exports.tries,
    segment_exports.last_error as "lastError", segment_exports.requested_at as "requestedAt",
    segment_exports.ended_at as "endedAt"`;

/** Leases by the index of due exports. */
const leaseStatement = (order: string, own = '') => `
  with due as (
    select segment_exports.workspace_id, segment_exports.id
    from segment_exports
    where ${own} segment_exports.state = $4::text and segment_exports.due_at <= statement_timestamp()
    order by ${order}
    limit $3::integer
    for update skip locked
  )
  update segment_exports
  set
    leased_by = $1::uuid, due_at = statement_timestamp() + $2::integer * interval '1 millisecond',
    tries = segment_exports.tries + 1
  from due
  where segment_exports.workspace_id = due.workspace_id and segment_exports.id = due.id
  returning ${leasedColumns}`;

/** Order that gives workspaces their turn: fewest exports in progress first, then oldest export. */
const fairOrder = `(
      select count(*)
      from segment_exports as others
      where others.workspace_id = segment_exports.workspace_id
        and others.state = 'open' and others.leased_by is not null
    ), segment_exports.id`;

const leaseStatements = {
  open: leaseStatement(fairOrder),
  ready: leaseStatement('segment_exports.due_at'),
} as const;

/** Variant for a distributed Postgres: workspaces with due exports, longest waiting first. */
const dueStatement = `
  select segment_exports.workspace_id as id
  from segment_exports
  where segment_exports.state = $1::text and segment_exports.due_at <= statement_timestamp()
  group by segment_exports.workspace_id
  order by min(segment_exports.due_at)
  limit ${WORKSPACES}`;

const own = 'segment_exports.workspace_id = $5::uuid and';
const leaseOfStatements = {
  open: leaseStatement('segment_exports.id', own),
  ready: leaseStatement('segment_exports.due_at', own),
} as const;

async function leaseExportsByWorkspace(
  pool: Pool,
  state: keyof typeof leaseStatements,
  { process, milliseconds, limit }: { process: string; milliseconds: number; limit: number },
): Promise<LeasedExport[]> {
  const leased: LeasedExport[] = [];
  const { rows: due } = await pool.query<{ id: string }>(dueStatement, [state]);
  // Leases one export per workspace, so that workspaces take turns.
  for (const { id } of due.slice(0, limit)) {
    const values = [process, milliseconds, 1, state, id];
    leased.push(...(await pool.query<LeasedExport>({ text: leaseOfStatements[state], values })).rows);
  }
  return leased;
}

/**
 * Leases exports for some milliseconds, in which no other process writes them (`open`) or calls their
 * callback (`ready`). Each lease counts as an attempt.
 *
 * @param process UUID of the holder, which was used for no other lease
 */
export async function leaseExports(
  pool: Pool,
  state: keyof typeof leaseStatements,
  { process, milliseconds, limit }: { process: string; milliseconds: number; limit: number },
): Promise<LeasedExport[]> {
  if (await isDistributed(pool))
    return leaseExportsByWorkspace(pool, state, { process, milliseconds, limit });
  const { rows } = await pool.query<LeasedExport>({
    name: `lease-${state}-exports`,
    text: leaseStatements[state],
    values: [process, milliseconds, limit, state],
  });
  return rows;
}

/** Identifies a lease. */
interface ExportLease {
  process: string;
  workspaceId: string;
  id: string;
}

const leaseCondition = `
  where segment_exports.workspace_id = $2::uuid
    and segment_exports.id = $3::uuid
    and segment_exports.leased_by = $1::uuid`;

const renewStatement = `
  update segment_exports
  set
    due_at = statement_timestamp() + $4::integer * interval '1 millisecond',
    users = case when segment_exports.state = 'open' then $5::bigint else segment_exports.users end,
    files = case when segment_exports.state = 'open' then $6::integer else segment_exports.files end,
    bytes = case when segment_exports.state = 'open' then $7::bigint else segment_exports.bytes end
  ${leaseCondition}`;

/**
 * Extends a lease and records the progress. The counts of a finished export stay unchanged: its lease is
 * extended while the callback is called.
 *
 * @returns false if another process has the lease
 */
export async function renewExport(
  pool: Pool,
  { process, workspaceId, id }: ExportLease,
  { users, files, bytes, milliseconds }: ExportCounts & { milliseconds: number },
): Promise<boolean> {
  const values = [process, workspaceId, id, milliseconds, users, files, bytes];
  const { rowCount } = await pool.query({ name: 'renew-export', text: renewStatement, values });
  return rowCount === 1;
}

const finishStatement = `
  update segment_exports
  set
    state = 'ready', users = $4::bigint, files = $5::integer, bytes = $6::bigint, ended_at = now(),
    tries = 1, last_error = null,
    due_at = case when segment_exports.callback is not null then later.due_at end,
    expires_at = case when segment_exports.url is not null then later.expires_at end
  from (
    select statement_timestamp() + $8::integer * interval '1 millisecond' as due_at,
      statement_timestamp() + $7::integer * interval '1 millisecond' as expires_at
  ) as later
  ${leaseCondition} and segment_exports.state = 'open'
  returning ${leasedColumns}`;

/**
 * Records that all files are written: the link is valid from now on for `linkMs`. The callback is called
 * under the same lease.
 *
 * @returns undefined if another process has the lease
 */
export async function finishExport(
  pool: Pool,
  { process, workspaceId, id }: ExportLease,
  { users, files, bytes, linkMs, milliseconds }: ExportCounts & { linkMs: number; milliseconds: number },
): Promise<LeasedExport | undefined> {
  const values = [process, workspaceId, id, users, files, bytes, linkMs, milliseconds];
  const { rows } = await pool.query<LeasedExport>({ name: 'finish-export', text: finishStatement, values });
  return rows[0];
}

const giveBackStatement = `
  update segment_exports
  set
    leased_by = null, due_at = statement_timestamp() + $4::integer * interval '1 millisecond',
    last_error = coalesce($5::text, segment_exports.last_error),
    tries = segment_exports.tries - case when $5::text is null then 1 else 0 end
  ${leaseCondition}`;

/** Releases a lease until the next attempt. Without an error, the lease does not count as an attempt. */
export async function releaseExport(
  pool: Pool,
  { process, workspaceId, id }: ExportLease,
  { retryMs, error }: { retryMs: number; error?: string },
): Promise<void> {
  const values = [process, workspaceId, id, retryMs, error ?? null];
  await pool.query({ name: 'give-back-export', text: giveBackStatement, values });
}

const endStatement = `
  update segment_exports
  set
    leased_by = null, due_at = null, last_error = $4::text,
    state = case when segment_exports.state = 'open' then 'failed' else segment_exports.state end,
    expires_at = case when segment_exports.state = 'open' then clock.now else segment_exports.expires_at end,
    ended_at = least(segment_exports.ended_at, clock.now),
    told_at = case when $4::text is null then clock.now end
  from (select statement_timestamp() as now) as clock
  ${leaseCondition}`;

/**
 * Ends an export: the callback was called, or writing or calling has failed permanently with `error`. The
 * files of a failed export expire immediately.
 */
export async function endExport(
  pool: Pool,
  { process, workspaceId, id }: ExportLease,
  error: string | null,
): Promise<void> {
  const values = [process, workspaceId, id, error];
  await pool.query({ name: 'end-export', text: endStatement, values });
}
