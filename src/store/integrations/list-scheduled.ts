import type { Pool } from '../database.ts';

/**
 * Reads the whole table, which is small, and the end of sync_jobs_integration for each row; `between` as in
 * list-runs.ts.
 */
const statement = `
  select
    integrations.id,
    integrations.schedule,
    greatest(integrations.updated_at, last_run.started_at) as since
  from integrations
  left join lateral (
    select sync_jobs.started_at
    from sync_jobs
    where sync_jobs.integration_id between integrations.id and integrations.id
    order by sync_jobs.integration_id desc, sync_jobs.id desc
    limit 1) as last_run on true
  where integrations.status = 'active'
    and integrations.schedule is not null
  order by integrations.id`;

export interface Scheduled {
  id: string;
  /** As it was given. */
  schedule: string;
  /** When a run of it began, or it was made, changed or resumed: whichever came last. */
  since: Date;
}

/** Active integrations with a schedule. */
export async function listScheduled(pool: Pool): Promise<Scheduled[]> {
  const { rows } = await pool.query<Scheduled>({
    name: 'list-scheduled-integrations',
    text: statement,
  });
  return rows;
}
