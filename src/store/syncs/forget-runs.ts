import type { Pool } from '../database.ts';

/** By a range of the primary key: a run's id is a UUIDv7, and older than its end. With a run go its row errors. */
const statement = `
  delete from sync_jobs
  where sync_jobs.id < uuid_v7_floor(now() - interval '12 months')
    and sync_jobs.finished_at < now() - interval '12 months'`;

/** Forgets runs that ended twelve months ago. */
export async function forgetRuns(pool: Pool): Promise<void> {
  await pool.query(statement);
}
