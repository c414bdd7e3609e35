import type { Pool } from '../database.ts';
import { FENCE_CHANNEL } from './fence-news.ts';

/**
 * By primary key. It does not wait for the disk: the ledger says that the fence is passed, and a row that a crash
 * brings back harms nobody.
 */
const statement = `
  with gone as (
    delete from fence_arrivals where fence_arrivals.fence_id = $1::uuid
  )
  select
    set_config('synchronous_commit', 'off', true),
    pg_notify('${FENCE_CHANNEL}', $1::uuid::text)`;

/** Tells the other workers that the fence is passed, and forgets who came to it. */
export async function openFence(pool: Pool, fence: string): Promise<void> {
  await pool.query({ name: 'open-fence', text: statement, values: [fence] });
}
