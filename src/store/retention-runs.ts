import { NIL_UUID } from '../platform/ids.ts';
import type { ArchivedMonth } from './archive-files.ts';
import { type Pool, storable } from './database.ts';
import { type AdvisoryLock, type Lease, withAdvisoryLock } from './leases.ts';

/** `archive`: removal of a month. `erase`: erasure of deleted users from its files. */
export type RetentionTask = 'archive' | 'erase';

export interface RetentionFailure extends ArchivedMonth {
  task: RetentionTask;
  /** Number of consecutive failed attempts. */
  failures: number;
  reason: string;
  /** Whether its back-off has ended. */
  due: boolean;
}

/** Maximum number of hours between two attempts; the first interval is one hour. */
const MAX_HOURS = 24;
/** Maximum length of a reason. */
const MAX_REASON = 2000;
const PAGE = 500;

const recordFailureStatement = `
  insert into retention_failures (workspace_id, month, kind, task, failures, next_at, reason)
  select $1::uuid, ($2::text || '-01')::date, $3::text, $4::text, former.failures + 1,
    now() + make_interval(hours => least(${MAX_HOURS}, 2 ^ least(former.failures, 10))::integer), $5::text
  from (
    select coalesce(max(retention_failures.failures), 0) as failures
    from retention_failures
    where retention_failures.workspace_id = $1::uuid and retention_failures.month = ($2::text || '-01')::date
      and retention_failures.kind = $3::text and retention_failures.task = $4::text
  ) as former
  on conflict (workspace_id, month, kind, task) do update set failures = excluded.failures,
    failed_at = excluded.failed_at, reason = excluded.reason, next_at = excluded.next_at`;

/**
 * Records a failed attempt. The next scheduled one follows after one hour, then two, four, and so on, up to a
 * day.
 */
export async function recordFailure(
  pool: Pool,
  { workspaceId, month, kind, task, reason }: ArchivedMonth & { task: RetentionTask; reason: string },
): Promise<void> {
  const values = [workspaceId, month, kind, task, storable(reason).slice(0, MAX_REASON)];
  await pool.query({ text: recordFailureStatement, values });
}

/** Deletes by primary key. */
const clearFailureStatement = `
  delete from retention_failures
  where retention_failures.workspace_id = $1::uuid and retention_failures.month = ($2::text || '-01')::date
    and retention_failures.kind = $3::text and retention_failures.task = $4::text`;

/** Deletes a recorded failure, because the task succeeded or is no longer needed. */
export async function clearFailure(
  pool: Pool,
  { workspaceId, month, kind, task }: ArchivedMonth & { task: RetentionTask },
): Promise<void> {
  await pool.query({ text: clearFailureStatement, values: [workspaceId, month, kind, task] });
}

/** Reads a page in primary key order. */
const listFailuresStatement = `
  select retention_failures.workspace_id as "workspaceId", to_char(retention_failures.month, 'YYYY-MM') as month,
    retention_failures.kind, retention_failures.task, retention_failures.failures, retention_failures.reason,
    retention_failures.next_at <= now() as due
  from retention_failures
  where (retention_failures.workspace_id, retention_failures.month, retention_failures.kind, retention_failures.task)
    > ($1::uuid, ($2::text || '-01')::date, $3::text, $4::text)
  order by retention_failures.workspace_id, retention_failures.month, retention_failures.kind, retention_failures.task
  limit $5::integer`;

/** Yields months whose last attempt failed. */
export async function* listFailures(pool: Pool): AsyncGenerator<RetentionFailure> {
  let after = { workspaceId: NIL_UUID, month: '0001-01', kind: '', task: '' };
  for (;;) {
    const values = [after.workspaceId, after.month, after.kind, after.task, PAGE];
    const { rows } = await pool.query<RetentionFailure>({ text: listFailuresStatement, values });
    yield* rows;
    if (rows.length < PAGE) return;
    after = rows.at(-1)!;
  }
}

/** Both tables have few rows. */
const readStateStatement = `
  select
    (select extract(epoch from retention_runs.finished_at)::float8 from retention_runs) as "finishedAt",
    (select count(*) from retention_failures where retention_failures.task = 'archive')::integer as archive,
    (select count(*) from retention_failures where retention_failures.task = 'erase')::integer as erase`;

interface RetentionState {
  /** Epoch seconds at which the last run was completed. Null if there was none. */
  finishedAt: number | null;
  /** Number of failing months per task, counting events and purchases separately. */
  archive: number;
  erase: number;
}

export async function readRetentionState(pool: Pool): Promise<RetentionState> {
  return (await pool.query<RetentionState>({ text: readStateStatement })).rows[0]!;
}

const noteFinishedStatement = `
  insert into retention_runs (one, finished_at) values (true, now())
  on conflict (one) do update set finished_at = excluded.finished_at`;

/** Records that a run was completed. */
export async function noteFinished(pool: Pool): Promise<void> {
  await pool.query({ text: noteFinishedStatement });
}

const readClockStatement = 'select now() as now, clock_timestamp()::text as instant';

/**
 * Returns Postgres's clock: `now` with milliseconds, and `instant` with microseconds as text that Postgres
 * can parse.
 */
export async function readClock(pool: Pool): Promise<{ now: Date; instant: string }> {
  return (await pool.query<{ now: Date; instant: string }>({ text: readClockStatement })).rows[0]!;
}

const RETENTION_LOCK: AdvisoryLock = {
  number: "hashtext('penstock.retention')",
  excludes: 'other runs of the retention',
};

/** Runs `work` while holding the retention lock. @returns undefined if another process holds it */
export function holdRetentionLock<T>(pool: Pool, work: (lease: Lease) => Promise<T>): Promise<T | undefined> {
  return withAdvisoryLock(pool, RETENTION_LOCK, work);
}
