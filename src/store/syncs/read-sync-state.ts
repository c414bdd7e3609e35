import type { Pool } from '../database.ts';

export interface SyncState {
  /** Runs that have not ended. */
  unfinished: number;
  /** Active integrations whose last run ended as an error or a config error. */
  failing: number;
  /** Seconds since the oldest run that has not ended was begun; 0: there is none. */
  oldestSeconds: number;
}

/** By the index of unfinished runs, and for each integration the end of its own; `between` as in list-runs.ts. */
const statement = `
  select
    (select count(*)::integer from sync_jobs where sync_jobs.finished_at is null) as unfinished,
    (
      select coalesce(extract(epoch from now() - min(sync_jobs.started_at)), 0)::float8
      from sync_jobs
      where sync_jobs.finished_at is null
    ) as "oldestSeconds",
    (
      select count(*)::integer
      from integrations
      cross join lateral (
        select sync_jobs.status
        from sync_jobs
        where sync_jobs.integration_id between integrations.id and integrations.id
          and sync_jobs.finished_at is not null
        order by sync_jobs.integration_id desc, sync_jobs.id desc
        limit 1
      ) as last
      where integrations.status = 'active'
        and last.status in ('error', 'config_error')
    ) as failing`;

/** How the syncs of the whole installation stand. */
export async function readSyncState(pool: Pool): Promise<SyncState> {
  const { rows } = await pool.query<SyncState>({ name: 'read-sync-state', text: statement });
  return rows[0]!;
}
