import type { Pool } from './database.ts';
import { readApplied } from './ledger.ts';

/** The channel on which workers tell each other about fences. */
export const FENCE_CHANNEL = 'penstock_fences';

/** A lane has come to the fence, or, without a lane, the fence is passed. */
export interface FenceNews {
  fence: string;
  lane?: number;
}

/** A notification's payload: the fence's id, and the lane behind a space. */
export function parseFenceNews(payload: string): FenceNews {
  const [fence = '', lane] = payload.split(' ');
  return lane === undefined ? { fence } : { fence, lane: Number(lane) };
}

/**
 * By primary keys; one row, and one notification, the first time. It does not wait for the disk: an arrival that a
 * crash loses is announced again.
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

/** Tells the other workers that the lane has come to the fence. @returns whether the fence is passed already */
export async function announceArrival(pool: Pool, fence: string, lane: number): Promise<boolean> {
  const { rows } = await pool.query<{ passed: boolean }>({
    name: 'announce-arrival',
    text: announceArrivalStatement,
    values: [fence, lane],
  });
  return rows[0]!.passed;
}

/** A scan; the table holds hardly more than the fences at which a lane waits now. */
const forgetArrivalsStatement = `
  delete from fence_arrivals where fence_arrivals.arrived_at < now() - interval '1 day'`;

/**
 * Forgets arrivals that came too late for their fence, or whose worker died. One of a lane that still waits after a
 * day is announced again within a moment.
 */
export async function forgetArrivals(pool: Pool): Promise<void> {
  await pool.query(forgetArrivalsStatement);
}

/**
 * By primary key. It does not wait for the disk: the ledger says that the fence is passed, and a row that a crash
 * brings back harms nobody.
 */
const openFenceStatement = `
  with gone as (
    delete from fence_arrivals where fence_arrivals.fence_id = $1::uuid
  )
  select
    set_config('synchronous_commit', 'off', true),
    pg_notify('${FENCE_CHANNEL}', $1::uuid::text)`;

/** Tells the other workers that the fence is passed, and forgets who came to it. */
export async function openFence(pool: Pool, fence: string): Promise<void> {
  await pool.query({ name: 'open-fence', text: openFenceStatement, values: [fence] });
}

/** By primary keys. */
const readFenceStatement = `
  select
    exists (select 1 from ledger where ledger.envelope_id = $1::uuid) as passed,
    array(select fence_arrivals.lane from fence_arrivals where fence_arrivals.fence_id = $1::uuid) as arrived`;

interface FenceState {
  /** Its objects have taken effect. */
  passed: boolean;
  /** Lanes that have come to it and said so in the store. */
  arrived: number[];
}

export async function readFence(pool: Pool, fence: string): Promise<FenceState> {
  const { rows } = await pool.query<FenceState>({
    name: 'read-fence',
    text: readFenceStatement,
    values: [fence],
  });
  return rows[0]!;
}

/** `fence_arrivals` holds hardly more than the fences at which a lane waits now. */
const stuckArrivalsStatement = `
  select
    fence_arrivals.fence_id::text as id,
    max(extract(epoch from now() - fence_arrivals.arrived_at))::float8 as seconds
  from fence_arrivals
  where fence_arrivals.arrived_at < now() - make_interval(secs => $1::integer)
  group by fence_arrivals.fence_id`;

/** Fences that are not passed and at which a lane has stood for so many seconds, and for how long the oldest has. */
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
