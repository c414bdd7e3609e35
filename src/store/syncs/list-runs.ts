import type { Pool } from '../database.ts';
import { type KeysetPage, keyset, type Listed, listed, NEWEST } from '../keyset.ts';

/** A run as the list tells it; times are ISO 8601 in UTC. */
export interface ListedRun {
  id: string;
  status: string;
  started_at: string;
  finished_at: string | null;
  last_timestamp: string | null;
  rows_synced: number;
  rows_failed: number;
}

/**
 * By the index sync_jobs_integration, in its order or against it: `between`, since with `=` the planner may go along the
 * primary key or the table, where the runs of all other integrations lie in between.
 */
const statementOf = (direction: KeysetPage['direction']) => {
  const { compare, beyond, order } = keyset[direction];
  return `
  select
    sync_jobs.id,
    sync_jobs.status,
    to_char(sync_jobs.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as started_at,
    to_char(sync_jobs.finished_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as finished_at,
    to_char(sync_jobs.last_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_timestamp,
    sync_jobs.rows_synced,
    sync_jobs.rows_failed,
    (
      select true from sync_jobs as other
      where other.integration_id between $1::uuid and $1::uuid and other.id ${beyond} $2::uuid
      order by other.integration_id
      limit 1) is not null as beyond,
    exists (
      select from sync_jobs as other
      where other.integration_id between $1::uuid and $1::uuid
      order by other.integration_id
      offset $3::integer) as paged
  from sync_jobs
  where sync_jobs.integration_id between $1::uuid and $1::uuid
    and sync_jobs.id ${compare} $2::uuid
  order by sync_jobs.integration_id ${order}, sync_jobs.id ${order}
  limit $3::integer + 1`;
};

/** A page of the runs of an integration. */
export async function listRuns(
  pool: Pool,
  integrationId: string,
  page: KeysetPage,
): Promise<Listed<ListedRun>> {
  const { rows } = await pool.query<ListedRun & { beyond: boolean; paged: boolean }>({
    name: `list-runs-${page.direction}`,
    text: statementOf(page.direction),
    values: [integrationId, page.from ?? NEWEST, page.size],
  });
  return listed(rows, page);
}
