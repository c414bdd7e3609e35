import type { IntegrationKind, SourceDefinition } from '../integrations/source.ts';
import { type Connection, iso, type Pool, storable } from './database.ts';

export type AskedBy = 'schedule' | 'api' | 'operator';

/** `in progress`: another run has not ended; `not active`: a draft or paused; `unknown`: there is no such integration. */
export type StartedRun = 'started' | 'in progress' | 'not active' | 'unknown';

/** The unique index sync_jobs_running admits one run of an integration that has not ended. */
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
 * Begins a run of an active integration that has none: from then on it is worked, whether the queue learns of it now
 * or later.
 *
 * @param id UUIDv7 that the run shall have
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

/** A run that has not ended, as far as it has come, and its integration. */
export interface Run {
  id: string;
  integrationId: string;
  workspaceId: string;
  name: string;
  kind: IntegrationKind;
  source: SourceDefinition;
  credentials: Buffer | null;
  updateExistingOnly: boolean;
  /** The watermark of the integration, where reading begins; ISO 8601 in UTC to the microsecond. */
  watermark: string | null;
  rowsRead: number;
  rowsSynced: number;
  rowsFailed: number;
  cancelled: boolean;
}

/** By primary keys. */
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

/** Undefined: it has ended, or is gone with its integration. */
export async function findRun(pool: Pool, id: string): Promise<Run | undefined> {
  const { rows } = await pool.query<Run>({ name: 'find-run', text: findRunStatement, values: [id] });
  return rows[0];
}

/** By the index sync_jobs_running, which holds these alone. */
const findUnfinishedRunsStatement = `
  select sync_jobs.id
  from sync_jobs
  where sync_jobs.finished_at is null
  order by sync_jobs.id`;

/** Ids of the runs that have not ended, the oldest first: one of an integration at most. */
export async function findUnfinishedRuns(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>({
    name: 'find-unfinished-runs',
    text: findUnfinishedRunsStatement,
  });
  return rows.map(({ id }) => id);
}

/** One row by primary key. */
const advanceIntegrationStatement = `
  update integrations
  set last_timestamp = $2::timestamptz
  where integrations.id = $1::uuid`;

/** @param watermark where the next sync begins to read: ISO 8601 in UTC */
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

export interface Advance {
  jobId: string;
  /** What the caller believes to have been read so far. */
  expected: number;
  read: number;
  synced: number;
  failed: number;
  watermark: string | undefined;
}

/**
 * One row by primary key, which is locked until COMMIT. `rows_read` only grows, with every chunk: a process that was
 * frozen and has missed a chunk finds another figure than the one that it knows, and nothing is advanced.
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

/** Counts rows that have ended. @returns whether the run is cancelled; undefined: it is not the caller's any more */
export async function advanceRun(tx: Connection, advance: Advance): Promise<boolean | undefined> {
  const { jobId, expected, read, synced, failed, watermark } = advance;
  const { rows } = await tx.query<{ cancelled: boolean }>({
    name: 'advance-run',
    text: advanceRunStatement,
    values: [jobId, expected, read, synced, failed, watermark ?? null],
  });
  return rows[0]?.cancelled;
}

/** By primary key. */
const isCancelledStatement = `
  select from sync_jobs
  where sync_jobs.id = $1::uuid
    and sync_jobs.cancelled_at is null
    and sync_jobs.finished_at is null`;

/** Whether a run is to end, or is gone. */
export async function isCancelled(pool: Pool, jobId: string): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'is-cancelled',
    text: isCancelledStatement,
    values: [jobId],
  });
  return rowCount === 0;
}

/** By the index sync_jobs_running. The first time stands. */
const cancelRunStatement = `
  update sync_jobs
  set cancelled_at = least(sync_jobs.cancelled_at, now())
  where sync_jobs.integration_id = $1::uuid
    and sync_jobs.finished_at is null
  returning sync_jobs.id`;

/** Asks for the end of the integration's run; its id. Undefined: none has not ended. */
export async function cancelRun(tx: Pick<Pool, 'query'>, integrationId: string): Promise<string | undefined> {
  const { rows } = await tx.query<{ id: string }>(cancelRunStatement, [integrationId]);
  return rows[0]?.id;
}

export type EndedStatus = 'success' | 'partial' | 'error' | 'config_error';

/** One row by primary key. What is in the lanes has to be accounted for first. */
const finishRunStatement = `
  update sync_jobs
  set status = $2, message = $3, finished_at = now()
  where sync_jobs.id = $1::uuid
    and sync_jobs.finished_at is null
    and not exists (select from sync_chunks where sync_chunks.job_id = $1::uuid)`;

/** Ends a run that the transaction holds already. @returns false: a chunk of it is on its way */
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

/** By a range of the primary key: a run's id is a UUIDv7, and older than its end. With a run go its row errors. */
const forgetRunsStatement = `
  delete from sync_jobs
  where sync_jobs.id < uuid_v7_floor(now() - interval '12 months')
    and sync_jobs.finished_at < now() - interval '12 months'`;

/** Forgets runs that ended twelve months ago. */
export async function forgetRuns(pool: Pool): Promise<void> {
  await pool.query(forgetRunsStatement);
}
