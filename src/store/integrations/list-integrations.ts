import type { Pool } from '../database.ts';
import { type KeysetPage, keyset, type Listed, listed, NEWEST } from '../keyset.ts';

/** An integration as the list tells it; times are ISO 8601 in UTC. Neither its source nor its credentials. */
export interface ListedIntegration {
  id: string;
  name: string;
  kind: string;
  status: string;
  warehouse_type: string;
  contact_emails: string;
  schedule: string | null;
  last_timestamp: string | null;
  /** Of the run that began last, if there was one. */
  last_started_at: string | null;
  last_status: string | null;
}

/**
 * Reads the integrations of the workspace, which are few, and the end of sync_jobs_integration for each of the page;
 * `between` as in list-runs.ts.
 */
const statementOf = (direction: KeysetPage['direction']) => {
  const { compare, beyond, order } = keyset[direction];
  return `
  select
    integrations.id,
    integrations.name,
    integrations.kind,
    integrations.status,
    integrations.warehouse_type,
    integrations.contact_emails,
    integrations.schedule,
    to_char(integrations.last_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_timestamp,
    to_char(last_run.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as last_started_at,
    last_run.status as last_status,
    exists (
      select from integrations as other
      where other.workspace_id = $1::uuid and other.id ${beyond} $2::uuid) as beyond,
    exists (select from integrations as other where other.workspace_id = $1::uuid offset $3::integer) as paged
  from integrations
  left join lateral (
    select sync_jobs.started_at, sync_jobs.status
    from sync_jobs
    where sync_jobs.integration_id between integrations.id and integrations.id
    order by sync_jobs.integration_id desc, sync_jobs.id desc
    limit 1) as last_run on true
  where integrations.workspace_id = $1::uuid
    and integrations.id ${compare} $2::uuid
  order by integrations.id ${order}
  limit $3::integer + 1`;
};

/** A page of the integrations of a workspace. */
export async function listIntegrations(
  pool: Pool,
  workspaceId: string,
  page: KeysetPage,
): Promise<Listed<ListedIntegration>> {
  const { rows } = await pool.query<ListedIntegration & { beyond: boolean; paged: boolean }>({
    name: `list-integrations-${page.direction}`,
    text: statementOf(page.direction),
    values: [workspaceId, page.from ?? NEWEST, page.size],
  });
  return listed(rows, page);
}
