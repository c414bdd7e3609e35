import type { Pool } from '../database.ts';

/** By the index sync_jobs_running. The first time stands. */
const statement = `
  update sync_jobs
  set cancelled_at = coalesce(sync_jobs.cancelled_at, now())
  where sync_jobs.integration_id = $1::uuid
    and sync_jobs.finished_at is null
  returning sync_jobs.id`;

/** Asks for the end of the integration's run; its id. Undefined: none has not ended. */
export async function cancelRun(pool: Pool, integrationId: string): Promise<string | undefined> {
  const { rows } = await pool.query<{ id: string }>(statement, [integrationId]);
  return rows[0]?.id;
}
