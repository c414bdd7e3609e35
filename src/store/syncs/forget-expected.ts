import type { Pool } from '../database.ts';

/** By the index on job_id. */
const statement = 'delete from sync_expected where sync_expected.job_id = $1::uuid';

/** What attempts at the run have noted; called when none of them reads any more. */
export async function forgetExpected(pool: Pool, jobId: string): Promise<void> {
  await pool.query({ name: 'forget-expected', text: statement, values: [jobId] });
}
