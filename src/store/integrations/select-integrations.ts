import type { Json } from '../../profile/json.ts';
import type { Pool } from '../database.ts';

/** An integration as the operator sees it; times are ISO 8601 in UTC. */
export interface SelectedIntegration {
  id: string;
  workspace_id: string;
  workspace: string;
  name: string;
  kind: string;
  warehouse_type: string;
  status: string;
  /** Its definition, as it was made. */
  source: Json;
  schedule: string | null;
  contact_emails: string;
  update_existing_only: boolean;
  last_timestamp: string | null;
  created_at: string;
  /** Of the run that began last, if there was one. */
  last_job_started_at: string | null;
  last_job_status: string | null;
}

/**
 * Reads the whole table, which is small, and the end of sync_jobs_integration for each row; `between` as in
 * list-runs.ts.
 */
const statement = `
  select
    integrations.id,
    integrations.workspace_id,
    workspaces.name as workspace,
    integrations.name,
    integrations.kind,
    integrations.warehouse_type,
    integrations.status,
    integrations.source,
    integrations.schedule,
    integrations.contact_emails,
    integrations.update_existing_only,
    to_char(integrations.last_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_timestamp,
    to_char(integrations.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as created_at,
    to_char(last_run.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as last_job_started_at,
    last_run.status as last_job_status
  from integrations
  join workspaces on workspaces.id = integrations.workspace_id
  left join lateral (
    select sync_jobs.started_at, sync_jobs.status
    from sync_jobs
    where sync_jobs.integration_id between integrations.id and integrations.id
    order by sync_jobs.integration_id desc, sync_jobs.id desc
    limit 1) as last_run on true
  where ($1::uuid is null or integrations.workspace_id = $1)
    and ($2::uuid is null or integrations.id = $2)
    and ($3::text is null or integrations.name = $3)
    and ($4::uuid is null or integrations.id > $4)
  order by integrations.id
  limit $5`;

export interface Wanted {
  workspaceId?: string | undefined;
  id?: string | undefined;
  name?: string | undefined;
  /** Only those behind this one. */
  after?: string | undefined;
  limit: number;
}

/** Integrations of every workspace, the oldest first. */
export async function selectIntegrations(
  pool: Pool,
  { workspaceId, id, name, after, limit }: Wanted,
): Promise<SelectedIntegration[]> {
  const { rows } = await pool.query<SelectedIntegration>({
    name: 'select-integrations',
    text: statement,
    values: [workspaceId, id, name, after, limit],
  });
  return rows;
}
