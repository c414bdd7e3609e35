import type { Pool } from '../database.ts';

/** Reads the whole table, which holds a row per run of a year; with a run go its row errors. */
const statement = `
  delete from sync_jobs
  where sync_jobs.finished_at < now() - interval '12 months'`;

/** Forgets runs that ended twelve months ago. */
export async function forgetRuns(pool: Pool): Promise<void> {
  await pool.query(statement);
}
