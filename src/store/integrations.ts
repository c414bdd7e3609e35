import type { Prisma } from '../generated/prisma/client.ts';
import { MAX_UUID } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import { type Database, iso, type Pool } from './database.ts';
import { type KeysetPage, keyset, type Listed, listed } from './sync-lists.ts';

/** An integration as shown to operators. Times are ISO 8601 in UTC. */
export interface SelectedIntegration {
  id: string;
  workspaceId: string;
  workspace: string;
  name: string;
  kind: string;
  warehouseType: string;
  status: string;
  /** Definition of the source, as it was created. */
  source: Json;
  schedule: string | null;
  contactEmails: string;
  updateExistingOnly: boolean;
  lastTimestamp: string | null;
  createdAt: string;
  /** Start of the latest run, if there was one. */
  lastJobStartedAt: string | null;
  lastJobStatus: string | null;
}

/**
 * Reads the whole table, which is small, and the end of sync_jobs_integration for each row. See `listRuns` in
 * sync-lists.ts for `between`.
 */
const selectIntegrationsStatement = (order: 'asc' | 'desc') => `
  select
    integrations.id,
    integrations.workspace_id as "workspaceId",
    workspaces.name as workspace,
    integrations.name,
    integrations.kind,
    integrations.warehouse_type as "warehouseType",
    integrations.status,
    integrations.source,
    integrations.schedule,
    integrations.contact_emails as "contactEmails",
    integrations.update_existing_only as "updateExistingOnly",
    ${iso('integrations.last_timestamp', 'US')} as "lastTimestamp",
    ${iso('integrations.created_at')} as "createdAt",
    ${iso('last_run.started_at')} as "lastJobStartedAt",
    last_run.status as "lastJobStatus"
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
    and ($4::uuid is null or integrations.id ${order === 'asc' ? '>' : '<'} $4)
  order by integrations.id ${order}
  limit $5`;

interface WantedIntegrations {
  workspaceId?: string | undefined;
  id?: string | undefined;
  name?: string | undefined;
  /** Id of the integration after which the page begins, oldest first. */
  after?: string | undefined;
  /** Id of the integration before which the page begins, newest first. */
  before?: string | undefined;
  newestFirst?: boolean;
  limit: number;
}

/** Returns integrations of all workspaces, oldest first unless `newestFirst` is set. */
export async function selectIntegrations(
  pool: Pool,
  { workspaceId, id, name, after, before, newestFirst = false, limit }: WantedIntegrations,
): Promise<SelectedIntegration[]> {
  const { rows } = await pool.query<SelectedIntegration>({
    name: newestFirst ? 'select-newest-integrations' : 'select-integrations',
    text: selectIntegrationsStatement(newestFirst ? 'desc' : 'asc'),
    values: [workspaceId, id, name, newestFirst ? before : after, limit],
  });
  return rows;
}

/** An integration in the list of the API, without its source and credentials. Times are ISO 8601 in UTC. */
export interface ListedIntegration {
  id: string;
  name: string;
  kind: string;
  status: string;
  warehouseType: string;
  contactEmails: string;
  schedule: string | null;
  lastTimestamp: string | null;
  /** Start of the latest run, if there was one. */
  lastStartedAt: string | null;
  lastStatus: string | null;
}

/**
 * Reads the integrations of the workspace, which are few, and the end of sync_jobs_integration for each of
 * the page. See `listRuns` in sync-lists.ts for `between`.
 */
const statementOf = (direction: KeysetPage['direction']) => {
  const { compare, beyond, order } = keyset[direction];
  return `
  select
    integrations.id,
    integrations.name,
    integrations.kind,
    integrations.status,
    integrations.warehouse_type as "warehouseType",
    integrations.contact_emails as "contactEmails",
    integrations.schedule,
    ${iso('integrations.last_timestamp', 'US')} as "lastTimestamp",
    ${iso('last_run.started_at')} as "lastStartedAt",
    last_run.status as "lastStatus",
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

/** Returns a page of the integrations of a workspace. */
export async function listIntegrations(
  pool: Pool,
  workspaceId: string,
  page: KeysetPage,
): Promise<Listed<ListedIntegration>> {
  const { rows } = await pool.query<ListedIntegration & { beyond: boolean; paged: boolean }>({
    name: `list-integrations-${page.direction}`,
    text: statementOf(page.direction),
    values: [workspaceId, page.from ?? MAX_UUID, page.size],
  });
  return listed(rows, page);
}

/**
 * Reads the whole table, which is small, and the end of sync_jobs_integration for each row. See `listRuns` in
 * sync-lists.ts for `between`.
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
  /** Schedule as it was entered. */
  schedule: string;
  /** Latest of: start of a run, creation, change, and resumption of the integration. */
  since: Date;
}

/** Returns the active integrations with a schedule. */
export async function listScheduled(pool: Pool): Promise<Scheduled[]> {
  const { rows } = await pool.query<Scheduled>({
    name: 'list-scheduled-integrations',
    text: listScheduledStatement,
  });
  return rows;
}

/** Returns whether the workspace has the integration. */
export async function isIntegration(
  { prisma }: Pick<Database, 'prisma'>,
  id: string,
  workspaceId: string,
): Promise<boolean> {
  const found = await prisma.integration.findUnique({ where: { id, workspaceId }, select: { id: true } });
  return found !== null;
}

/**
 * Deletes an integration unless it has an unfinished run. Also deletes its runs and their row errors.
 *
 * @returns whether it was deleted
 */
export async function deleteIfIdle(tx: Prisma.TransactionClient, id: string): Promise<boolean> {
  const { count } = await tx.integration.deleteMany({ where: { id, jobs: { none: { finishedAt: null } } } });
  return count === 1;
}
