import type { Pool } from '../database.ts';
import { FENCE_CHANNEL } from './fence-news.ts';

/**
 * By primary keys; one row, and one notification, the first time. It does not wait for the disk: an arrival that a
 * crash loses is announced again.
 */
const statement = `
  with ledgered as materialized (
    select exists (select from ledger where ledger.envelope_id = $1::uuid) as passed
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
    text: statement,
    values: [fence, lane],
  });
  return rows[0]!.passed;
}
