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
 * Inserts by primary keys; only the first call inserts a row and sends a notification. Does not wait for the
 * disk: an arrival that is lost in a crash is announced again.
 */
const announceArrivalStatement = `
  with ledgered as materialized (
    select exists (select 1 from ledger where ledger.envelope_id = $1::uuid) as passed
  ), announced as (
    insert into fence_arrivals (fence_id, lane)
    select $1::uuid, $2::integer from ledgered where not ledgered.passed
    on conflict (fence_id, lane) do nothing
    returning fence_arrivals.fence_id, fence_arrivals.lane
  )
  select
    ledgered.passed,
    set_config('synchronous_commit', 'off', true),
    (select pg_notify('${FENCE_CHANNEL}', announced.fence_id || ' ' || announced.lane) from announced)
  from ledgered`;

/**
 * Announces to other workers that the lane has reached the fence.
 *
 * @returns whether the fence was already passed
 */
export async function announceArrival(pool: Pool, fence: string, lane: number): Promise<boolean> {
  const { rows } = await pool.query<{ passed: boolean }>(
    withTimeout({ name: 'announce-arrival', text: announceArrivalStatement, values: [fence, lane] }),
  );
  return rows[0]!.passed;
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
 * Deletes by primary key. Does not wait for the disk: the ledger records that the fence was passed, and a row
 * that reappears after a crash is harmless.
 */
const openFenceStatement = `
  with gone as (
    delete from fence_arrivals where fence_arrivals.fence_id = $1::uuid
  )
  select
    set_config('synchronous_commit', 'off', true),
    pg_notify('${FENCE_CHANNEL}', $1::uuid::text)`;

/** Announces to other workers that the fence was passed, and deletes its arrivals. */
export async function openFence(pool: Pool, fence: string): Promise<void> {
  await pool.query(withTimeout({ name: 'open-fence', text: openFenceStatement, values: [fence] }));
}

/** Reads by primary keys. */
const readFenceStatement = `
  select
    exists (select 1 from ledger where ledger.envelope_id = $1::uuid) as passed,
    array(select fence_arrivals.lane from fence_arrivals where fence_arrivals.fence_id = $1::uuid) as arrived`;

interface FenceState {
  /** Whether its objects were applied. */
  passed: boolean;
  /** Lanes whose arrival is recorded in the store. */
  arrived: number[];
}

export async function readFence(pool: Pool, fence: string): Promise<FenceState> {
  const { rows } = await pool.query<FenceState>(
    withTimeout({ name: 'read-fence', text: readFenceStatement, values: [fence] }),
  );
  return rows[0]!;
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
