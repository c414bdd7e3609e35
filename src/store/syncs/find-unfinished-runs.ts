import type { Pool } from '../database.ts';

/** By the index sync_jobs_running, which holds these alone. */
const statement = `
  select sync_jobs.id
  from sync_jobs
  where sync_jobs.finished_at is null
  order by sync_jobs.id`;

/** Ids of the runs that have not ended, the oldest first: one of an integration at most. */
export async function findUnfinishedRuns(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>({ name: 'find-unfinished-runs', text: statement });
  return rows.map(({ id }) => id);
}
