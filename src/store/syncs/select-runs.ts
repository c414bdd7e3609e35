import type { Pool } from '../database.ts';
import type { AskedBy } from './start-run.ts';

/** A run as the operator sees it; times are ISO 8601 in UTC. */
export interface SelectedRun {
  id: string;
  status: string;
  asked_by: AskedBy;
  started_at: string;
  finished_at: string | null;
  cancelled_at: string | null;
  last_timestamp: string | null;
  rows_read: number;
  rows_synced: number;
  rows_failed: number;
  message: string | null;
}

/** By the index sync_jobs_integration; `between` as in list-runs.ts. */
const statement = `
  select
    sync_jobs.id,
    sync_jobs.status,
    sync_jobs.asked_by,
    to_char(sync_jobs.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as started_at,
    to_char(sync_jobs.finished_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as finished_at,
    to_char(sync_jobs.cancelled_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as cancelled_at,
    to_char(sync_jobs.last_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_timestamp,
    sync_jobs.rows_read,
    sync_jobs.rows_synced,
    sync_jobs.rows_failed,
    sync_jobs.message
  from sync_jobs
  where sync_jobs.integration_id between $1::uuid and $1::uuid
    and ($2::uuid is null or sync_jobs.id = $2)
    and ($3::uuid is null or sync_jobs.id < $3)
  order by sync_jobs.integration_id desc, sync_jobs.id desc
  limit $4`;

export interface WantedRuns {
  id?: string | undefined;
  /** Only those behind this one. */
  after?: string | undefined;
  limit: number;
}

/** Runs of an integration, the newest first. */
export async function selectRuns(
  pool: Pool,
  integrationId: string,
  { id, after, limit }: WantedRuns,
): Promise<SelectedRun[]> {
  const { rows } = await pool.query<SelectedRun>({
    name: 'select-runs',
    text: statement,
    values: [integrationId, id, after, limit],
  });
  return rows;
}
