import type { ArchivedMonth } from './archive-files.ts';
import { type Pool, storable } from './database.ts';

/** `archive`: the month was to go; `erase`: deleted users were to be erased from its files. */
export type RetentionTask = 'archive' | 'erase';

export interface RetentionFailure extends ArchivedMonth {
  task: RetentionTask;
  /** Vain tries in a row. */
  failures: number;
  reason: string;
  /** Whether its back-off is over. */
  due: boolean;
}

/** Hours between two tries, at most; the first is an hour. */
const MOST_HOURS = 24;
/** Characters of a reason. */
const MOST_REASON = 2000;
const NIL = '00000000-0000-0000-0000-000000000000';
const PAGE = 500;

const recordFailureStatement = `
  insert into retention_failures (workspace_id, month, kind, task, failures, next_at, reason)
  select $1::uuid, ($2::text || '-01')::date, $3::text, $4::text, former.failures + 1,
    now() + make_interval(hours => least(${MOST_HOURS}, 2 ^ least(former.failures, 10))::integer), $5::text
  from (
    select coalesce(max(retention_failures.failures), 0) as failures
    from retention_failures
    where retention_failures.workspace_id = $1::uuid and retention_failures.month = ($2::text || '-01')::date
      and retention_failures.kind = $3::text and retention_failures.task = $4::text
  ) as former
  on conflict (workspace_id, month, kind, task) do update set failures = excluded.failures,
    failed_at = excluded.failed_at, reason = excluded.reason, next_at = excluded.next_at`;

/** A try was vain: the next one by schedule is after an hour, then two, four, and so on up to a day. */
export async function recordFailure(
  pool: Pool,
  { workspaceId, month, kind, task, reason }: ArchivedMonth & { task: RetentionTask; reason: string },
): Promise<void> {
  const values = [workspaceId, month, kind, task, storable(reason).slice(0, MOST_REASON)];
  await pool.query({ text: recordFailureStatement, values });
}

/** By primary key. */
const clearFailureStatement = `
  delete from retention_failures
  where retention_failures.workspace_id = $1::uuid and retention_failures.month = ($2::text || '-01')::date
    and retention_failures.kind = $3::text and retention_failures.task = $4::text`;

/** It went well, or is not to be done any more. */
export async function clearFailure(
  pool: Pool,
  { workspaceId, month, kind, task }: ArchivedMonth & { task: RetentionTask },
): Promise<void> {
  await pool.query({ text: clearFailureStatement, values: [workspaceId, month, kind, task] });
}

/** By primary key, a page in its order. */
const listFailuresStatement = `
  select retention_failures.workspace_id as "workspaceId", to_char(retention_failures.month, 'YYYY-MM') as month,
    retention_failures.kind, retention_failures.task, retention_failures.failures, retention_failures.reason,
    retention_failures.next_at <= now() as due
  from retention_failures
  where (retention_failures.workspace_id, retention_failures.month, retention_failures.kind, retention_failures.task)
    > ($1::uuid, ($2::text || '-01')::date, $3::text, $4::text)
  order by retention_failures.workspace_id, retention_failures.month, retention_failures.kind, retention_failures.task
  limit $5::integer`;

/** Months of which the last try was vain. */
export async function* listFailures(pool: Pool): AsyncGenerator<RetentionFailure> {
  let after = { workspaceId: NIL, month: '0001-01', kind: '', task: '' };
  for (;;) {
    const values = [after.workspaceId, after.month, after.kind, after.task, PAGE];
    const { rows } = await pool.query<RetentionFailure>({ text: listFailuresStatement, values });
    yield* rows;
    if (rows.length < PAGE) return;
    after = rows.at(-1)!;
  }
}

/** Both are one row or few. */
const readStateStatement = `
  select
    (select extract(epoch from retention_runs.finished_at)::float8 from retention_runs) as "finishedAt",
    (select count(*) from retention_failures where retention_failures.task = 'archive')::integer as archive,
    (select count(*) from retention_failures where retention_failures.task = 'erase')::integer as erase`;

export interface RetentionState {
  /** Seconds since 1970, when a run last came to its end; null: never. */
  finishedAt: number | null;
  /** Months, events and purchases apart, of which the last try was vain. */
  archive: number;
  erase: number;
}

export async function readRetentionState(pool: Pool): Promise<RetentionState> {
  return (await pool.query<RetentionState>({ text: readStateStatement })).rows[0]!;
}

const noteFinishedStatement = `
  insert into retention_runs (one, finished_at) values (true, now())
  on conflict (one) do update set finished_at = excluded.finished_at`;

/** A run came to its end. */
export async function noteFinished(pool: Pool): Promise<void> {
  await pool.query({ text: noteFinishedStatement });
}

const readClockStatement = 'select now() as now, clock_timestamp()::text as instant';

/** Postgres's clock: `now` to the millisecond; `instant` to the microsecond, as a text that it reads again. */
export async function readClock(pool: Pool): Promise<{ now: Date; instant: string }> {
  return (await pool.query<{ now: Date; instant: string }>({ text: readClockStatement })).rows[0]!;
}

const ALONE = 'penstock.retention';

/** Says that nobody else is at the retention: it ends with its session, whoever ends that. */
export interface Lease {
  /** Aborted as soon as this process learns that the session is lost. */
  signal: AbortSignal;
  /** Asks the session itself. @throws {Error} when it is lost */
  confirm(): Promise<void>;
}

/**
 * Runs `work` while nobody else does: a lease that ends with the session, and so with the process.
 * @returns undefined when somebody else is at it
 */
export async function aloneWithRetention<T>(
  pool: Pool,
  work: (lease: Lease) => Promise<T>,
): Promise<T | undefined> {
  const session = await pool.connect();
  const lost = new AbortController();
  let broken: Error | undefined;
  const lose = (cause?: Error) => {
    broken ??= new Error('the session that keeps other runs of the retention away was lost', { cause });
    lost.abort(broken);
  };
  session.on('error', lose).on('end', lose);
  async function confirm(): Promise<void> {
    await session.query('select').catch(lose);
    lost.signal.throwIfAborted();
  }
  try {
    const lock = `select pg_try_advisory_lock(hashtext('${ALONE}')) as mine`;
    if (!(await session.query<{ mine: boolean }>(lock)).rows[0]!.mine) return undefined;
    try {
      return await work({ signal: lost.signal, confirm });
    } finally {
      await session.query(`select pg_advisory_unlock(hashtext('${ALONE}'))`).catch(lose);
    }
  } finally {
    session.off('error', lose).off('end', lose);
    session.release(broken);
  }
}
