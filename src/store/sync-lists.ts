import { MAX_UUID } from '../platform/ids.ts';
import { iso, type Pool } from './database.ts';
import type { Channel } from './subscription-states.ts';
import type { AskedBy } from './sync-runs.ts';

/** A run as the operator sees it; times are ISO 8601 in UTC. */
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

/** By the index sync_jobs_integration; `between` as in `listRuns`. */
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
    text: selectRunsStatement,
    values: [integrationId, id, after, limit],
  });
  return rows;
}

/** A run as the list tells it; times are ISO 8601 in UTC. */
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
 * By the index sync_jobs_integration, in its order or against it. `between`, since with `=` the planner may go along
 * the primary key or the table, where the runs of all other integrations lie in between.
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

/** A page of the runs of an integration. */
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
  /** Runs that have not ended. */
  unfinished: number;
  /** Active integrations whose last run ended as an error or a config error. */
  failing: number;
  /** The first 20 of them, by name. */
  failingNames: { workspace: string; integration: string }[];
  /** Seconds since the oldest run that has not ended was begun; 0: there is none. */
  oldestSeconds: number;
}

/** By the index of unfinished runs, and for each integration the end of its own; `between` as in `listRuns`. */
const readSyncStateStatement = `
  with failed as materialized (
    select integrations.id, integrations.workspace_id, integrations.name
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
    ) as "failingNames"`;

/** How the syncs of the whole installation stand. */
export async function readSyncState(pool: Pool): Promise<SyncState> {
  const { rows } = await pool.query<SyncState>({ name: 'read-sync-state', text: readSyncStateStatement });
  return rows[0]!;
}

/** What decides about the rows of a workspace beside the rows themselves. */
export interface WorkspaceRules {
  /** Ids of its subscription groups, archived ones included. */
  groups: string[];
  /** The channel of each of them. */
  channels: Record<string, Channel>;
  /** External ids whose objects are refused. */
  blocked: string[];
  /** Its own limit of /users/track, if it has one. */
  limit: { requests: number; windowSeconds: number } | null;
}

/** By the workspace's indexes. */
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
 * A page of a list whose newest row comes first, by ids that are UUIDv7: it begins behind a row, or ends before one.
 * Pages stay whole while rows are added, since a row is never counted.
 */
export interface KeysetPage {
  /** `older`: the rows behind `from`; `newer`: those right before it. */
  direction: 'older' | 'newer';
  /** An id; absent: from the newest row on. */
  from?: string;
  /** Most rows of the page. */
  size: number;
}

/** What a page's statement puts into the text, by direction. */
export const keyset = {
  older: { compare: '<', beyond: '>=', order: 'desc' },
  newer: { compare: '>', beyond: '<=', order: 'asc' },
} as const;

/** What a page's statement says of each row beside it. */
interface Placed {
  id: string;
  /** Whether there are rows on the other side of `from`. */
  beyond: boolean;
  /** Whether the whole list is longer than a page. */
  paged: boolean;
}

export interface Listed<Row> {
  /** The newest first. */
  rows: Row[];
  /** Whether there are rows before the first one here. */
  newer: boolean;
  /** Whether there are rows behind the last one here. */
  older: boolean;
}

/** The page of rows that were fetched with one more than its size. */
export function listed<Row extends Placed>(fetched: Row[], { direction, size }: KeysetPage): Listed<Row> {
  const rows = fetched.slice(0, size);
  const further = fetched.length > size;
  const [{ beyond, paged } = { beyond: false, paged: false }] = fetched;
  if (direction === 'newer') rows.reverse();
  const [newer, older] = direction === 'newer' ? [further, beyond] : [beyond, further];
  return { rows, newer: paged && newer, older: paged && older };
}
