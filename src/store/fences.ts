import type pg from 'pg';
import type { Pool } from './database.ts';
import { readApplied } from './ledger.ts';

/** Notification channel on which workers announce arrivals at fences and passed fences. */
export const FENCE_CHANNEL = 'penstock_fences';

/** A notification: `lane` has reached the fence or, without a lane, the fence was passed. */
export interface FenceNews {
  fence: string;
  lane?: number;
}

/** Parses a notification's payload: the fence's id and, separated by a space, the lane. */
export function parseFenceNews(payload: string): FenceNews {
  const [fence = '', lane] = payload.split(' ');
  return lane === undefined ? { fence } : { fence, lane: Number(lane) };
}

/**
 * Milliseconds to wait for an answer. Lanes repeat these statements while they wait at a fence. Without the
 * limit, all of them would wait until TCP sends again after an outage of the network.
 */
const ANSWER_MS = 5000;

/** Limits the wait for the answer of a statement. The connection is not reused after that time. */
const withTimeout = (statement: pg.QueryConfig): pg.QueryConfig =>
  ({ ...statement, query_timeout: ANSWER_MS }) as pg.QueryConfig;

/**
 * Inserts and reads by primary keys. Only the first announcement of an arrival inserts a row and sends a notification.
 * Does not wait for the disk: an arrival that is lost in a crash is announced again. The order of the rows prevents
 * deadlocks between two processes.
 */
const exchangeArrivalsStatement = `
  with given as materialized (
    select given.fence_id, given.lane
    from unnest($1::uuid[], $2::integer[]) as given (fence_id, lane)
  ), passed as materialized (
    select ledger.envelope_id from ledger where ledger.envelope_id = any($1::uuid[])
  ), announced as (
    insert into fence_arrivals (fence_id, lane)
    select given.fence_id, given.lane
    from given
    where given.lane is not null
      and not exists (select from passed where passed.envelope_id = given.fence_id)
    order by given.fence_id, given.lane
    on conflict (fence_id, lane) do nothing
    returning fence_arrivals.fence_id, fence_arrivals.lane
  )
  select
    given.fence_id::text as fence,
    exists (select from passed where passed.envelope_id = given.fence_id) as passed,
    array(select fence_arrivals.lane from fence_arrivals where fence_arrivals.fence_id = given.fence_id) as arrived,
    set_config('synchronous_commit', 'off', true),
    (
      select count(pg_notify('${FENCE_CHANNEL}', announced.fence_id || ' ' || announced.lane)::text)
      from announced
    )
  from (select distinct given.fence_id from given) as given`;

/** Returns those of the marks of fences that have a ledger row, because they were damaged and became dead letters. */
export function readDamagedMarks(pool: Pool, marks: string[]): Promise<Set<string>> {
  return readApplied(pool, marks, { timeout: ANSWER_MS });
}

/** A fence at which lanes of this process wait. */
export interface FenceWait {
  fence: string;
  /** Lanes whose arrival is announced. Without lanes, the fence is only read. */
  lanes: number[];
}

export interface FenceState {
  fence: string;
  /** Whether its objects were applied. */
  passed: boolean;
  /** Lanes whose arrival was announced before. */
  arrived: number[];
}

/** Announces to other workers which lanes have reached fences, and reads the state of these fences. */
export async function exchangeArrivals(pool: Pool, waits: readonly FenceWait[]): Promise<FenceState[]> {
  const rows = waits.flatMap(({ fence, lanes }) =>
    (lanes.length > 0 ? lanes : [null]).map((lane) => ({ fence, lane })),
  );
  const values = [rows.map(({ fence }) => fence), rows.map(({ lane }) => lane)];
  const answer = await pool.query<FenceState>(
    withTimeout({ name: 'exchange-arrivals', text: exchangeArrivalsStatement, values }),
  );
  return answer.rows;
}

/** Scans the table, which has few rows other than fences at which a lane is waiting. */
const forgetArrivalsStatement = `
  delete from fence_arrivals where fence_arrivals.arrived_at < now() - interval '1 day'`;

/**
 * Deletes arrivals that came too late for their fence, or whose worker died. If a lane still waits after a
 * day, its arrival is announced again immediately.
 */
export async function forgetArrivals(pool: Pool): Promise<void> {
  await pool.query(forgetArrivalsStatement);
}

/**
 * Deletes by primary key. Does not wait for the disk: the ledger records that the fences were passed, and a row
 * that reappears after a crash is harmless.
 */
const openFencesStatement = `
  with gone as (
    delete from fence_arrivals where fence_arrivals.fence_id = any($1::uuid[])
  )
  select
    set_config('synchronous_commit', 'off', true),
    pg_notify('${FENCE_CHANNEL}', given.fence_id::text)
  from unnest($1::uuid[]) as given (fence_id)`;

/** Announces to other workers that fences were passed, and deletes the arrivals at these fences. */
export async function openFences(pool: Pool, fences: readonly string[]): Promise<void> {
  await pool.query(withTimeout({ name: 'open-fences', text: openFencesStatement, values: [fences] }));
}

/** Scans the table, which has few rows other than fences at which a lane is waiting. */
const stuckArrivalsStatement = `
  select
    fence_arrivals.fence_id::text as id,
    max(extract(epoch from now() - fence_arrivals.arrived_at))::float8 as seconds
  from fence_arrivals
  where fence_arrivals.arrived_at < now() - make_interval(secs => $1::integer)
  group by fence_arrivals.fence_id`;

/**
 * Returns the number of fences that are not passed and at which a lane has waited for `afterSeconds`, and the
 * longest such wait in seconds.
 */
export async function readStuckFences(
  pool: Pick<Pool, 'query'>,
  afterSeconds: number,
): Promise<{ fences: number; seconds: number }> {
  const { rows } = await pool.query<{ id: string; seconds: number }>(stuckArrivalsStatement, [afterSeconds]);
  if (rows.length === 0) return { fences: 0, seconds: 0 };
  const passed = await readApplied(
    pool,
    rows.map(({ id }) => id),
  );
  const stuck = rows.filter(({ id }) => !passed.has(id));
  return { fences: stuck.length, seconds: Math.max(0, ...stuck.map(({ seconds }) => seconds)) };
}
