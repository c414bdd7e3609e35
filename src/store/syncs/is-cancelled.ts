import type { Pool } from '../database.ts';

/** By primary key. */
const statement = `
  select from sync_jobs
  where sync_jobs.id = $1::uuid
    and sync_jobs.cancelled_at is null
    and sync_jobs.finished_at is null`;

/** Whether a run is to end, or is gone. */
export async function isCancelled(pool: Pool, jobId: string): Promise<boolean> {
  const { rowCount } = await pool.query({ name: 'is-cancelled', text: statement, values: [jobId] });
  return rowCount === 0;
}
