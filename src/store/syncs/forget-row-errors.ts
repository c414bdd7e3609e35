import type { Pool } from '../database.ts';

/** By the index sync_row_errors_time. */
const statement = `
  delete from sync_row_errors
  where (sync_row_errors.job_id, sync_row_errors.number) in (
    select old.job_id, old.number
    from sync_row_errors as old
    where old.occurred_at < now() - interval '30 days'
    limit 10000)`;

/** Forgets why rows failed 30 days ago, 10,000 at a time. */
export async function forgetRowErrors(pool: Pool): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(statement));
  } while (deleted === 10_000);
}
