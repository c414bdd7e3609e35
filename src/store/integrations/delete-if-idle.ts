import type { Pool } from '../database.ts';

/** Takes its runs along, with their errors. */
const statement = `
  delete from integrations
  where integrations.id = $1::uuid
    and not exists (
      select from sync_jobs
      where sync_jobs.integration_id = integrations.id and sync_jobs.finished_at is null)`;

/** Deletes an integration unless it has a run that has not ended; whether it did. */
export async function deleteIfIdle(pool: Pool, id: string): Promise<boolean> {
  const { rowCount } = await pool.query(statement, [id]);
  return rowCount === 1;
}
