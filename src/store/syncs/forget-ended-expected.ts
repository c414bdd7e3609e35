import type { Pool } from '../database.ts';

/**
 * By the index sync_expected_job, from one run to the next: an attempt under way may have a million rows, and none of
 * them is read.
 */
const statement = `
  with recursive runs (id) as (
    (select sync_expected.job_id from sync_expected order by sync_expected.job_id limit 1)
    union all
    select (
      select sync_expected.job_id
      from sync_expected
      where sync_expected.job_id > runs.id
      order by sync_expected.job_id
      limit 1)
    from runs
    where runs.id is not null
  ), ended as materialized (
    select sync_jobs.id
    from runs
    join sync_jobs on sync_jobs.id = runs.id
    where sync_jobs.finished_at is not null
  )
  delete from sync_expected
  using ended
  where sync_expected.job_id = ended.id`;

/** Forgets what attempts have noted whose run is over. */
export async function forgetEndedExpected(pool: Pool): Promise<void> {
  await pool.query(statement);
}
