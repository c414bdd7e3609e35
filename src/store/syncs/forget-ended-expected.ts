import type { Pool } from '../database.ts';

/** By the index on job_id; the table holds attempts under way, and those of processes that were killed. */
const statement = `
  delete from sync_expected
  using sync_jobs
  where sync_jobs.id = sync_expected.job_id
    and sync_jobs.finished_at is not null`;

/** Forgets what attempts have noted whose run is over. */
export async function forgetEndedExpected(pool: Pool): Promise<void> {
  await pool.query(statement);
}
