import type { Json } from '../profile/json.ts';
import type { Pool } from './database.ts';
import { type KeysetPage, keyset, type Listed, listed, NEWEST } from './sync-lists.ts';

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
 * `listRuns` of sync-lists.ts.
 */
const selectIntegrationsStatement = `
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
    text: selectIntegrationsStatement,
    values: [workspaceId, id, name, after, limit],
  });
  return rows;
}

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
 * `between` as in `listRuns` of sync-lists.ts.
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

/**
 * Reads the whole table, which is small, and the end of sync_jobs_integration for each row; `between` as in
 * `listRuns` of sync-lists.ts.
 */
const listScheduledStatement = `
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
    text: listScheduledStatement,
  });
  return rows;
}

/** By primary key. */
const isIntegrationStatement = `
  select from integrations
  where integrations.id = $1::uuid
    and integrations.workspace_id = $2::uuid`;

/** Whether the workspace has the integration. */
export async function isIntegration(pool: Pool, id: string, workspaceId: string): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'is-integration',
    text: isIntegrationStatement,
    values: [id, workspaceId],
  });
  return rowCount === 1;
}

/** Takes its runs along, with their errors. */
const deleteIfIdleStatement = `
  delete from integrations
  where integrations.id = $1::uuid
    and not exists (
      select from sync_jobs
      where sync_jobs.integration_id = integrations.id and sync_jobs.finished_at is null)`;

/** Deletes an integration unless it has a run that has not ended; whether it did. */
export async function deleteIfIdle(tx: Pick<Pool, 'query'>, id: string): Promise<boolean> {
  const { rowCount } = await tx.query(deleteIfIdleStatement, [id]);
  return rowCount === 1;
}

/** By primary key; a draft stays one: it has to be tested first. */
const setStatusStatement = `
  update integrations
  set status = $2, updated_at = now()
  where integrations.id = $1::uuid and integrations.status <> 'draft'
  returning integrations.id`;

/** Lets an integration run by its schedule, or not. @returns false: it is a draft, or gone */
export async function setIntegrationStatus(
  tx: Pick<Pool, 'query'>,
  id: string,
  status: 'active' | 'paused',
): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'set-integration-status',
    text: setStatusStatement,
    values: [id, status],
  });
  return rowCount === 1;
}
