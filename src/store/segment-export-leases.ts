import type { Pool } from './database.ts';
import { isHeldRow, leasesOf, type RowLease, rowLeaseValues, takeOldest, takeOldestOf } from './leases.ts';
import type { ExportCounts, NewSegmentExport } from './segment-exports.ts';

/** Leases of exports. `due_at` is also the time of the next attempt, so its clock is that of the exports. */
const exportLeases = leasesOf({
  ...{ table: 'segment_exports', until: 'due_at', holder: 'leased_by' },
  clock: 'statement_timestamp()',
});

/** A leased export with everything that is needed to write it or to call its callback. */
export interface LeasedExport extends NewSegmentExport, RowLease {
  tries: number;
  lastError: string | null;
  requestedAt: Date;
  endedAt: Date | null;
}

const leasedColumns = `
    ${exportLeases.lease} as lease, segment_exports.workspace_id::text as "workspaceId", segment_exports.id::text,
    segment_exports.segment_id::text as "segmentId", segment_exports.object_prefix as "objectPrefix",
    segment_exports.fields, segment_exports.attributes, segment_exports.output_format as "outputFormat",
    segment_exports.url, segment_exports.callback, segment_exports.tries,
    segment_exports.last_error as "lastError", segment_exports.requested_at as "requestedAt",
    segment_exports.ended_at as "endedAt"`;

/** Order that gives workspaces their turn: fewest exports in progress first, then oldest export. */
const fairOrder = `(
      select count(*)
      from segment_exports as others
      where others.workspace_id = segment_exports.workspace_id
        and others.state = 'open' and others.leased_by is not null
    ), segment_exports.id`;

/** Leases by the index of due exports. Workspaces take turns: a distributed Postgres leases one export of each. */
const leaseStatement = (name: string, orderInWorkspace: string, order = orderInWorkspace) =>
  takeOldestOf(exportLeases, {
    ...{ name, values: 1, where: 'segment_exports.state = $1::text', order, orderInWorkspace },
    perWorkspace: 1,
    set: ', tries = segment_exports.tries + 1',
    returning: leasedColumns,
  });

const leaseStatements = {
  open: leaseStatement('lease-open-exports', 'segment_exports.id', fairOrder),
  ready: leaseStatement('lease-ready-exports', 'segment_exports.due_at'),
} as const;

/**
 * Leases exports for some milliseconds, in which no other process writes them (`open`) or calls their
 * callback (`ready`). Each lease counts as an attempt.
 */
export function leaseExports(
  pool: Pool,
  state: keyof typeof leaseStatements,
  { milliseconds, limit }: { milliseconds: number; limit: number },
): Promise<LeasedExport[]> {
  return takeOldest<LeasedExport>(pool, leaseStatements[state], { values: [state], milliseconds, limit });
}

const leaseCondition = `
  where ${isHeldRow(exportLeases)}`;

/** A finished export without a callback has no next step, and a renewal gives it none. */
const renewStatement = `
  update segment_exports
  set
    due_at = case when segment_exports.due_at is not null then later.due_at end,
    users = case when segment_exports.state = 'open' then $5::bigint else segment_exports.users end,
    files = case when segment_exports.state = 'open' then $6::integer else segment_exports.files end,
    bytes = case when segment_exports.state = 'open' then $7::bigint else segment_exports.bytes end
  from (select ${exportLeases.endAfter('$4')} as due_at) as later
  ${leaseCondition}`;

/**
 * Extends a lease and records the progress. The counts of a finished export stay unchanged: its lease is
 * extended while the callback is called.
 *
 * @returns false if another process has the lease
 */
export async function renewExport(
  pool: Pool,
  lease: RowLease,
  { users, files, bytes, milliseconds }: ExportCounts & { milliseconds: number },
): Promise<boolean> {
  const values = [...rowLeaseValues(lease), milliseconds, users, files, bytes];
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
    select ${exportLeases.endAfter('$8')} as due_at,
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
  lease: RowLease,
  { users, files, bytes, linkMs, milliseconds }: ExportCounts & { linkMs: number; milliseconds: number },
): Promise<LeasedExport | undefined> {
  const values = [...rowLeaseValues(lease), users, files, bytes, linkMs, milliseconds];
  const { rows } = await pool.query<LeasedExport>({ name: 'finish-export', text: finishStatement, values });
  return rows[0];
}

const giveBackStatement = `
  update segment_exports
  set
    ${exportLeases.release('$4')},
    last_error = coalesce($5::text, segment_exports.last_error),
    tries = segment_exports.tries - case when $5::text is null then 1 else 0 end
  ${leaseCondition}`;

/** Releases a lease until the next attempt. Without an error, the lease does not count as an attempt. */
export async function releaseExport(
  pool: Pool,
  lease: RowLease,
  { retryMs, error }: { retryMs: number; error?: string },
): Promise<void> {
  const values = [...rowLeaseValues(lease), retryMs, error ?? null];
  await pool.query({ name: 'give-back-export', text: giveBackStatement, values });
}

const endStatement = `
  update segment_exports
  set
    ${exportLeases.clear}, last_error = $4::text,
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
export async function endExport(pool: Pool, lease: RowLease, error: string | null): Promise<void> {
  const values = [...rowLeaseValues(lease), error];
  await pool.query({ name: 'end-export', text: endStatement, values });
}
