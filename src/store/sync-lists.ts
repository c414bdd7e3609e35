import { MAX_UUID } from '../platform/ids.ts';
import { takePage } from '../platform/paging.ts';
import { iso, type Pool } from './database.ts';
import type { Channel } from './subscription-states.ts';
import type { AskedBy } from './sync-runs.ts';

/** A run as shown to operators. Times are ISO 8601 in UTC. */
export interface SelectedRun {
  id: string;
  status: string;
  askedBy: AskedBy;
  startedAt: string;
  finishedAt: string | null;
  cancelledAt: string | null;
  lastTimestamp: string | null;
  rowsRead: number;
  rowsSynced: number;
  rowsFailed: number;
  message: string | null;
}

/** Reads by the index sync_jobs_integration. See `listRuns` for `between`. */
const selectRunsStatement = `
  select
    sync_jobs.id,
    sync_jobs.status,
    sync_jobs.asked_by as "askedBy",
    ${iso('sync_jobs.started_at')} as "startedAt",
    ${iso('sync_jobs.finished_at')} as "finishedAt",
    ${iso('sync_jobs.cancelled_at')} as "cancelledAt",
    ${iso('sync_jobs.last_timestamp', 'US')} as "lastTimestamp",
    sync_jobs.rows_read as "rowsRead",
    sync_jobs.rows_synced as "rowsSynced",
    sync_jobs.rows_failed as "rowsFailed",
    sync_jobs.message
  from sync_jobs
  where sync_jobs.integration_id between $1::uuid and $1::uuid
    and ($2::uuid is null or sync_jobs.id = $2)
    and ($3::uuid is null or sync_jobs.id < $3)
  order by sync_jobs.integration_id desc, sync_jobs.id desc
  limit $4`;

interface WantedRuns {
  id?: string | undefined;
  /** Id of the run after which the page begins. */
  after?: string | undefined;
  limit: number;
}

/** Returns runs of an integration, newest first. */
export async function selectRuns(
  pool: Pool,
  integrationId: string,
  { id, after, limit }: WantedRuns,
): Promise<SelectedRun[]> {
  const { rows } = await pool.query<SelectedRun>({
    name: 'select-runs',
    text: selectRunsStatement,
    values: [integrationId, id, after, limit],
  });
  return rows;
}

/** A run in the list of the API. Times are ISO 8601 in UTC. */
interface ListedRun {
  id: string;
  status: string;
  startedAt: string;
  finishedAt: string | null;
  lastTimestamp: string | null;
  rowsSynced: number;
  rowsFailed: number;
}

/**
 * Reads by the index sync_jobs_integration, in either direction. Uses `between`, because with `=` the planner
 * may scan the primary key or the table with the runs of all other integrations.
 */
const statementOf = (direction: KeysetPage['direction']) => {
  const { compare, beyond, order } = keyset[direction];
  return `
  select
    sync_jobs.id,
    sync_jobs.status,
    ${iso('sync_jobs.started_at')} as "startedAt",
    ${iso('sync_jobs.finished_at')} as "finishedAt",
    ${iso('sync_jobs.last_timestamp', 'US')} as "lastTimestamp",
    sync_jobs.rows_synced as "rowsSynced",
    sync_jobs.rows_failed as "rowsFailed",
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

/** Returns a page of the runs of an integration. */
export async function listRuns(
  pool: Pool,
  integrationId: string,
  page: KeysetPage,
): Promise<Listed<ListedRun>> {
  const { rows } = await pool.query<ListedRun & { beyond: boolean; paged: boolean }>({
    name: `list-runs-${page.direction}`,
    text: statementOf(page.direction),
    values: [integrationId, page.from ?? MAX_UUID, page.size],
  });
  return listed(rows, page);
}

interface SyncState {
  /** Number of unfinished runs. */
  unfinished: number;
  /** Number of active integrations whose last run ended with an error or a config error. */
  failing: number;
  /** The first 20 failing integrations in order of their ids. */
  failingNames: { workspace: string; integration: string }[];
  /** The first 20 active integrations whose last run failed or ended as partial. */
  troubled: TroubledIntegration[];
  /** Seconds since the start of the oldest unfinished run; 0 if all runs are finished. */
  oldestSeconds: number;
}

/** An active integration whose last run did not succeed. */
export interface TroubledIntegration {
  workspaceId: string;
  workspace: string;
  integration: string;
  id: string;
  status: 'error' | 'config_error' | 'partial';
  rowsFailed: number;
  message: string | null;
  /** ISO 8601. */
  endedAt: string;
}

/** Reads the index of unfinished runs, and the last ended run per integration. See `listRuns` for `between`. */
const readSyncStateStatement = `
  with troubled as materialized (
    select integrations.id, integrations.workspace_id, integrations.name, last.status, last.rows_failed,
      last.message, last.finished_at
    from integrations
    cross join lateral (
      select sync_jobs.status, sync_jobs.rows_failed, sync_jobs.message, sync_jobs.finished_at
      from sync_jobs
      where sync_jobs.integration_id between integrations.id and integrations.id
        and sync_jobs.finished_at is not null
      order by sync_jobs.integration_id desc, sync_jobs.id desc
      limit 1
    ) as last
    where integrations.status = 'active'
      and last.status in ('error', 'config_error', 'partial')
  ), failed as (
    select troubled.id, troubled.workspace_id, troubled.name
    from troubled
    where troubled.status <> 'partial'
  )
  select
    (select count(*)::integer from sync_jobs where sync_jobs.finished_at is null) as unfinished,
    (
      select coalesce(extract(epoch from now() - min(sync_jobs.started_at)), 0)::float8
      from sync_jobs
      where sync_jobs.finished_at is null
    ) as "oldestSeconds",
    (select count(*)::integer from failed) as failing,
    (
      select coalesce(jsonb_agg(jsonb_build_object('workspace', workspaces.name, 'integration', first.name)), '[]')
      from (select failed.* from failed order by failed.id limit 20) as first
      join workspaces on workspaces.id = first.workspace_id
    ) as "failingNames",
    (
      select coalesce(jsonb_agg(jsonb_build_object(
        'workspaceId', workspaces.id, 'workspace', workspaces.name, 'integration', first.name, 'id', first.id,
        'status', first.status,
        'rowsFailed', first.rows_failed, 'message', left(first.message, 200), 'endedAt', first.finished_at)), '[]')
      from (select troubled.* from troubled order by troubled.id limit 20) as first
      join workspaces on workspaces.id = first.workspace_id
    ) as troubled`;

/** Returns the state of all syncs of the installation. */
export async function readSyncState(pool: Pool): Promise<SyncState> {
  const { rows } = await pool.query<SyncState>({ name: 'read-sync-state', text: readSyncStateStatement });
  return rows[0]!;
}

/** Settings of a workspace that affect how its rows are applied. */
export interface WorkspaceRules {
  /** Ids of its subscription groups, including archived ones. */
  groups: string[];
  /** Channel of each subscription group. */
  channels: Record<string, Channel>;
  /** External ids whose objects are rejected. */
  blocked: string[];
  /** The workspace's own limit of /users/track, if it has one. */
  limit: { requests: number; windowSeconds: number } | null;
}

/** Reads by the workspace's indexes. */
const readRulesStatement = `
  select
    array(
      select subscription_groups.id::text
      from subscription_groups
      where subscription_groups.workspace_id = $1::uuid
    ) as groups,
    (
      select coalesce(jsonb_object_agg(subscription_groups.id, subscription_groups.channel), '{}')
      from subscription_groups
      where subscription_groups.workspace_id = $1::uuid
    ) as channels,
    array(
      select blocked_external_ids.external_id
      from blocked_external_ids
      where blocked_external_ids.workspace_id = $1::uuid
        and blocked_external_ids.unblocked_at is null
    ) as blocked,
    (
      select jsonb_build_object('requests', rate_limits.requests, 'windowSeconds', rate_limits.window_seconds)
      from rate_limits
      where rate_limits.workspace_id = $1::uuid
        and rate_limits.bucket = 'users.track'
    ) as limit`;

export async function readRules(pool: Pool, workspaceId: string): Promise<WorkspaceRules> {
  const { rows } = await pool.query<WorkspaceRules>({
    name: 'read-rules',
    text: readRulesStatement,
    values: [workspaceId],
  });
  return rows[0]!;
}

/**
 * A page of a list that is ordered by UUIDv7, newest first. It begins after a row or ends before one. Added
 * rows do not shift pages, because rows are not counted.
 */
export interface KeysetPage {
  /** `older`: the rows after `from`. `newer`: the rows directly before it. */
  direction: 'older' | 'newer';
  /** Id of a row. Absent: start with the newest row. */
  from?: string;
  /** Maximum number of rows. */
  size: number;
}

/** SQL operators of a page's statement, by direction. */
export const keyset = {
  older: { compare: '<', beyond: '>=', order: 'desc' },
  newer: { compare: '>', beyond: '<=', order: 'asc' },
} as const;

/** Columns that a page's statement adds to each row. */
interface PageRow {
  id: string;
  /** Whether there are rows on the other side of `from`. */
  beyond: boolean;
  /** Whether the whole list is longer than a page. */
  paged: boolean;
}

export interface Listed<Row> {
  /** Rows, newest first. */
  rows: Row[];
  /** Whether there are newer rows before the page. */
  newer: boolean;
  /** Whether there are older rows after the page. */
  older: boolean;
}

/** Returns the page from rows that were fetched with one more than the page size. */
export function listed<Row extends PageRow>(fetched: Row[], { direction, size }: KeysetPage): Listed<Row> {
  const { rows, next } = takePage(fetched, size, ({ id }) => id);
  const hasMore = next !== null;
  const [{ beyond, paged } = { beyond: false, paged: false }] = fetched;
  if (direction === 'newer') rows.reverse();
  const [newer, older] = direction === 'newer' ? [hasMore, beyond] : [beyond, hasMore];
  return { rows, newer: paged && newer, older: paged && older };
}
