import type { IntegrationKind, SourceDefinition } from '../integrations/source.ts';
import { type Connection, iso, type Pool, storable } from './database.ts';

export type AskedBy = 'schedule' | 'api' | 'operator';

/**
 * `in progress`: the integration has an unfinished run. `not active`: it is a draft or paused. `unknown`: it
 * does not exist.
 */
type StartedRun = 'started' | 'in progress' | 'not active' | 'unknown';

/** The unique index sync_jobs_running allows one unfinished run per integration. */
const startRunStatement = `
  with integration as (
    select integrations.id, integrations.status
    from integrations
    where integrations.id = $2::uuid),
  started as (
    insert into sync_jobs (id, integration_id, asked_by)
    select $1::uuid, integration.id, $3
    from integration
    where integration.status = 'active'
    on conflict (integration_id) where finished_at is null do nothing
    returning sync_jobs.id)
  select
    case
      when exists (select from started) then 'started'
      when integration.status = 'active' then 'in progress'
      else 'not active'
    end as outcome
  from integration`;

/**
 * Starts a run of an active integration without an unfinished run. It will be processed even if the queue is
 * notified later.
 *
 * @param id UUIDv7 of the new run
 */
export async function startRun(
  tx: Pick<Pool, 'query'>,
  { id, integrationId, askedBy }: { id: string; integrationId: string; askedBy: AskedBy },
): Promise<StartedRun> {
  const { rows } = await tx.query<{ outcome: StartedRun }>({
    name: 'start-run',
    text: startRunStatement,
    values: [id, integrationId, askedBy],
  });
  return rows[0]?.outcome ?? 'unknown';
}

/** An unfinished run with its progress and its integration. */
export interface Run {
  id: string;
  integrationId: string;
  workspaceId: string;
  name: string;
  kind: IntegrationKind;
  source: SourceDefinition;
  credentials: Buffer | null;
  updateExistingOnly: boolean;
  /** Watermark of the integration, where reading begins. ISO 8601 in UTC with microseconds. */
  watermark: string | null;
  rowsRead: number;
  rowsSynced: number;
  rowsFailed: number;
  cancelled: boolean;
}

/** Reads by primary keys. */
const findRunStatement = `
  select
    sync_jobs.id,
    integrations.id as "integrationId",
    integrations.workspace_id as "workspaceId",
    integrations.name,
    integrations.kind,
    integrations.source,
    integrations.credentials,
    integrations.update_existing_only as "updateExistingOnly",
    ${iso('integrations.last_timestamp', 'US')} as "watermark",
    sync_jobs.rows_read as "rowsRead",
    sync_jobs.rows_synced as "rowsSynced",
    sync_jobs.rows_failed as "rowsFailed",
    sync_jobs.cancelled_at is not null as cancelled
  from sync_jobs
  join integrations on integrations.id = sync_jobs.integration_id
  where sync_jobs.id = $1::uuid
    and sync_jobs.finished_at is null`;

/** Returns an unfinished run. Undefined if it has ended or was deleted with its integration. */
export async function findRun(pool: Pool, id: string): Promise<Run | undefined> {
  const { rows } = await pool.query<Run>({ name: 'find-run', text: findRunStatement, values: [id] });
  return rows[0];
}

/** Reads the index sync_jobs_running, which only has unfinished runs. */
const findUnfinishedRunsStatement = `
  select sync_jobs.id
  from sync_jobs
  where sync_jobs.finished_at is null
  order by sync_jobs.id`;

/** Returns the ids of unfinished runs, oldest first; at most one per integration. */
export async function findUnfinishedRuns(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>({
    name: 'find-unfinished-runs',
    text: findUnfinishedRunsStatement,
  });
  return rows.map(({ id }) => id);
}

/** Updates by primary key. */
const advanceIntegrationStatement = `
  update integrations
  set last_timestamp = $2::timestamptz
  where integrations.id = $1::uuid`;

/** Moves the watermark of an integration. @param watermark start of the next sync, ISO 8601 in UTC */
export async function advanceIntegration(
  tx: Connection,
  integrationId: string,
  watermark: string,
): Promise<void> {
  await tx.query({
    name: 'advance-integration',
    text: advanceIntegrationStatement,
    values: [integrationId, watermark],
  });
}

interface Advance {
  jobId: string;
  /** Number of rows that the caller assumes were read so far. */
  expected: number;
  read: number;
  synced: number;
  failed: number;
  watermark: string | undefined;
}

/**
 * Updates by primary key and locks the row until COMMIT. `rows_read` increases with every chunk. A process
 * that was frozen and missed a chunk finds a different number than it expects, and nothing is updated.
 */
const advanceRunStatement = `
  update sync_jobs
  set
    rows_read = sync_jobs.rows_read + $3::bigint,
    rows_synced = sync_jobs.rows_synced + $4::bigint,
    rows_failed = sync_jobs.rows_failed + $5::bigint,
    last_timestamp = coalesce($6::timestamptz, sync_jobs.last_timestamp)
  where sync_jobs.id = $1::uuid
    and sync_jobs.rows_read = $2::bigint
    and sync_jobs.finished_at is null
  returning sync_jobs.cancelled_at is not null as cancelled`;

/**
 * Adds to the counts of a run.
 *
 * @returns whether the run is cancelled; undefined if another process has continued it
 */
export async function advanceRun(tx: Connection, advance: Advance): Promise<boolean | undefined> {
  const { jobId, expected, read, synced, failed, watermark } = advance;
  const { rows } = await tx.query<{ cancelled: boolean }>({
    name: 'advance-run',
    text: advanceRunStatement,
    values: [jobId, expected, read, synced, failed, watermark ?? null],
  });
  return rows[0]?.cancelled;
}

/** Reads by primary key. */
const isCancelledStatement = `
  select from sync_jobs
  where sync_jobs.id = $1::uuid
    and sync_jobs.cancelled_at is null
    and sync_jobs.finished_at is null`;

/** Returns whether a run was cancelled, has ended or no longer exists. */
export async function isCancelled(pool: Pool, jobId: string): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'is-cancelled',
    text: isCancelledStatement,
    values: [jobId],
  });
  return rowCount === 0;
}

/** Updates by the index sync_jobs_running. Keeps the time of the first request. */
const cancelRunStatement = `
  update sync_jobs
  set cancelled_at = least(sync_jobs.cancelled_at, now())
  where sync_jobs.integration_id = $1::uuid
    and sync_jobs.finished_at is null
  returning sync_jobs.id`;

/**
 * Requests the cancellation of the integration's run.
 *
 * @returns the run's id; undefined if no run is in progress
 */
export async function cancelRun(tx: Pick<Pool, 'query'>, integrationId: string): Promise<string | undefined> {
  const { rows } = await tx.query<{ id: string }>(cancelRunStatement, [integrationId]);
  return rows[0]?.id;
}

export type EndedStatus = 'success' | 'partial' | 'error' | 'config_error';

/** Updates by primary key. Objects in the lanes must be accounted for first. */
const finishRunStatement = `
  update sync_jobs
  set status = $2, message = $3, finished_at = now()
  where sync_jobs.id = $1::uuid
    and sync_jobs.finished_at is null
    and not exists (select from sync_chunks where sync_chunks.job_id = $1::uuid)`;

/** Ends a run that the transaction has locked. @returns false if one of its chunks is still in the outbox */
export async function finishRun(
  tx: Connection,
  jobId: string,
  { status, message }: { status: EndedStatus; message: string | undefined },
): Promise<boolean> {
  const text = message === undefined ? null : storable(message);
  const { rowCount } = await tx.query({
    name: 'finish-run',
    text: finishRunStatement,
    values: [jobId, status, text],
  });
  return rowCount === 1;
}

/**
 * Deletes a range of the primary key: a run's id is a UUIDv7 from before its end. Row errors are deleted with
 * their run.
 */
const forgetRunsStatement = `
  delete from sync_jobs
  where sync_jobs.id < uuid_v7_floor(now() - interval '12 months')
    and sync_jobs.finished_at < now() - interval '12 months'`;

/** Deletes runs that ended twelve months ago. */
export async function forgetRuns(pool: Pool): Promise<void> {
  await pool.query(forgetRunsStatement);
}
