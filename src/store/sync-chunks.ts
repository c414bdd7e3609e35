import { type Connection, type Pool, storable } from './database.ts';
import { deadLettersTable, deadLetterValues, forDeadLetters, locateDeadLetters } from './dead-letters.ts';
import { withCitusForm } from './one-workspace.ts';
import { STAGED_DAYS, type StagedEnvelopes } from './staged-envelopes.ts';
import { finishRun } from './sync-runs.ts';
import { inTransaction } from './transactions.ts';

/** A source row, as it is shown with the reason for its failure. */
export interface ShownRow {
  /** Row number in the run, from 1. */
  number: number;
  updatedAt: string | null;
  identifier: string | null;
  /** Identifiers in the row, in the format of dead letters. */
  identifiers: string[];
  payload: string | null;
}

export interface RowError extends ShownRow {
  reason: string;
}

/** State after the chunk was applied, apart from rows that the workers reject. */
interface ChunkProgress {
  /** Number of rows in the chunk. */
  rows: number;
  /** Number of rows that were rejected before they were enqueued. */
  failed: number;
  /** Reasons of the rejected rows, up to the number that is kept. */
  errors: RowError[];
  /** Values that were truncated or omitted in enqueued rows, up to the number that is kept. Absent if none. */
  warnings?: RowError[];
  /**
   * Watermark after the chunk: its newest UPDATED_AT. Absent if no row had one. The stored chunk has this
   * field name.
   */
  lastTimestamp?: string;
  boundary: {
    /**
     * Whether the newest time has changed in this chunk, so that fingerprints of the old one are discarded.
     */
    moved: boolean;
    /** Number of rows with the newest time by fingerprint, in hex. */
    newest: Record<string, number>;
    /** Number of rows without a readable time. */
    unreadable: Record<string, number>;
  };
}

/** A chunk in the outbox: objects that are enqueued together. */
export interface OutboxChunk extends StagedEnvelopes {
  /** Source row of each object, by the object's id. */
  rows: Record<string, ShownRow>;
  progress: ChunkProgress;
}

/** Returns the stored form of a row, in this order. Processes of other releases read it as well. */
const toStoredRow = <Row extends ShownRow>({ number, updatedAt, ...others }: Row) => {
  return { number, updated_at: updatedAt, ...others };
};

const fromStoredRow = <Row extends ReturnType<typeof toStoredRow<ShownRow>>>({
  updated_at,
  ...others
}: Row) => ({ ...others, updatedAt: updated_at });

function toStored({ rows, progress: { rows: count, failed, errors, warnings, ...others } }: OutboxChunk) {
  return {
    rows: Object.fromEntries(Object.entries(rows).map(([id, row]) => [id, toStoredRow(row)])),
    progress: {
      ...{ rows: count, failed, errors: errors.map(toStoredRow) },
      ...(warnings && { warnings: warnings.map(toStoredRow) }),
      ...others,
    },
  };
}

type Stored = Omit<OutboxChunk, 'rows' | 'progress'> & ReturnType<typeof toStored>;

function fromStored({ rows, progress: { errors, warnings, ...others }, ...chunk }: Stored): OutboxChunk {
  return {
    ...chunk,
    rows: Object.fromEntries(Object.entries(rows).map(([id, row]) => [id, fromStoredRow(row)])),
    progress: {
      ...{ ...others, errors: errors.map(fromStoredRow) },
      ...(warnings && { warnings: warnings.map(fromStoredRow) }),
    },
  };
}

/** Inserts by primary key. Inserts nothing if the run was cancelled. */
const addToOutboxStatement = `
  insert into sync_chunks (job_id, envelope_ids, entries, rows, progress)
  select sync_jobs.id, $2::uuid[], $3::json, $4::json, $5::json
  from sync_jobs
  where sync_jobs.id = $1::uuid
    and sync_jobs.cancelled_at is null
  on conflict (job_id) do nothing`;

/** Adds a chunk to the outbox. @returns false if another process has added one, or the run was cancelled */
export async function addToOutbox(tx: Connection, jobId: string, chunk: OutboxChunk): Promise<boolean> {
  const { envelopeIds, entries } = chunk;
  const { rows, progress } = toStored(chunk);
  const { rowCount } = await tx.query({
    name: 'add-to-outbox',
    text: addToOutboxStatement,
    values: [jobId, envelopeIds, JSON.stringify(entries), JSON.stringify(rows), JSON.stringify(progress)],
  });
  return rowCount === 1;
}

/** Reads by primary key. */
const findInOutboxStatement = `
  select
    sync_chunks.envelope_ids as "envelopeIds",
    sync_chunks.entries,
    sync_chunks.rows,
    sync_chunks.progress
  from sync_chunks
  where sync_chunks.job_id = $1::uuid`;

/** Returns the chunk of an interrupted run, which may or may not have been enqueued. */
export async function findInOutbox(pool: Pool, jobId: string): Promise<OutboxChunk | undefined> {
  const { rows } = await pool.query<Stored>({
    name: 'find-in-outbox',
    text: findInOutboxStatement,
    values: [jobId],
  });
  return rows[0] && fromStored(rows[0]);
}

/** Deletes by primary key. */
const removeFromOutboxStatement = 'delete from sync_chunks where sync_chunks.job_id = $1::uuid';

export async function removeFromOutbox(tx: Connection, jobId: string): Promise<void> {
  await tx.query({ name: 'remove-from-outbox', text: removeFromOutboxStatement, values: [jobId] });
}

/** The table has one chunk per unfinished run. Locks the run first, like a process that works on it. */
const lockStaleStatement = `
  select sync_jobs.id
  from sync_jobs
  where sync_jobs.finished_at is null
    and sync_jobs.id in (
      select sync_chunks.job_id from sync_chunks
      where sync_chunks.staged_at < now() - interval '${STAGED_DAYS} days')
  limit 1
  for update of sync_jobs skip locked`;

/**
 * Ends runs whose chunk has waited for `STAGED_DAYS` and erases the chunk. The watermark stays before the
 * chunk, so the next run reads its rows again.
 */
export async function endStaleRuns(pool: Pool): Promise<void> {
  const endOne = () =>
    inTransaction(pool, async (tx) => {
      const { rows } = await tx.query<{ id: string }>(lockStaleStatement);
      const [stale] = rows;
      if (!stale) return false;
      await removeFromOutbox(tx, stale.id);
      const message = `the run was interrupted for more than ${STAGED_DAYS} days; the next run reads its last rows again`;
      return finishRun(tx, stale.id, { status: 'error', message });
    });
  while (await endOne()) {}
}

/** Reads by primary key. There are few dead letters. */
const findRefusedStatement = withCitusForm(`
  select letters.id, letters.reason
  from ${deadLettersTable}`);

/** Returns the reasons of those objects that could not be applied, by object id. */
export async function findRefused(pool: Pool, objectIds: string[]): Promise<Map<string, string>> {
  const keys = await locateDeadLetters(pool, objectIds);
  if (keys.length === 0) return new Map();
  const rows = await forDeadLetters(pool, keys, async (some) => {
    const refused = await pool.query<{ id: string; reason: string }>({
      name: 'find-refused',
      text: findRefusedStatement,
      values: deadLetterValues(some),
    });
    return refused.rows;
  });
  return new Map(rows.map(({ id, reason }) => [id, reason]));
}

/** Reads by primary keys. */
const ownerOfRunStatement = `
  select integrations.workspace_id as "workspaceId"
  from sync_jobs
  join integrations on integrations.id = sync_jobs.integration_id
  where sync_jobs.id = $1::uuid`;

/** Returns the workspace of a run through its integration. Undefined if the run no longer exists. */
async function ownerOfRun(database: Pick<Pool, 'query'>, jobId: string): Promise<string | undefined> {
  const { rows } = await database.query<{ workspaceId: string }>({
    name: 'owner-of-run',
    text: ownerOfRunStatement,
    values: [jobId],
  });
  return rows[0]?.workspaceId;
}

/** Inserts by primary key. */
const insertRowErrorsStatement = `
  insert into sync_row_errors (
    job_id, workspace_id, number, updated_at, identifier, payload, reason, identifiers, synced)
  select $1::uuid, $9::uuid, logged.number, logged.updated_at, logged.identifier, logged.payload, logged.reason,
    array(select json_array_elements_text(logged.identifiers)), logged.synced
  from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::json[], $8::boolean[])
    as logged (number, updated_at, identifier, payload, reason, identifiers, synced)
  on conflict do nothing`;

/** Records the reasons of rows that failed, and of rows with truncated or omitted values. */
export async function insertRowErrors(
  tx: Connection,
  jobId: string,
  { failed, warned }: { failed: RowError[]; warned: RowError[] },
): Promise<void> {
  const rows = [...failed, ...warned];
  const workspaceId = await ownerOfRun(tx, jobId);
  if (workspaceId === undefined) return;
  await tx.query({
    name: 'insert-row-errors',
    text: insertRowErrorsStatement,
    values: [
      jobId,
      rows.map(({ number }) => number),
      rows.map(({ updatedAt }) => updatedAt && storable(updatedAt)),
      rows.map(({ identifier }) => identifier && storable(identifier)),
      rows.map(({ payload }) => payload && storable(payload)),
      rows.map(({ reason }) => storable(reason)),
      rows.map(({ identifiers }) => JSON.stringify(identifiers.map(storable))),
      rows.map((_, index) => index >= failed.length),
      workspaceId,
    ],
  });
}

/** A source row that failed or was synced with a warning. */
export interface ListedRowError {
  number: number;
  synced: boolean;
  updatedAt: string | null;
  identifier: string | null;
  /** Valid identifiers of the row, in the format of `identifierText`. */
  identifiers: string[];
  reason: string;
  payload: string | null;
}

/** Reads by primary key, through the view that excludes rows of deleted users. */
const selectRowErrorsStatement = withCitusForm(`
  select
    errors.number, errors.synced, errors.updated_at as "updatedAt", errors.identifier, errors.identifiers,
    errors.reason, errors.payload
  from kept_row_errors as errors
  where errors.workspace_id = $4::uuid and errors.job_id = $1::uuid and errors.number > $2::bigint
  order by errors.job_id, errors.number
  limit $3::integer`);

/** Returns rows of a run that failed or were synced with a warning, in source order, after row `after`. */
export async function selectRowErrors(
  pool: Pool,
  runId: string,
  { after, limit }: { after: number; limit: number },
): Promise<ListedRowError[]> {
  const workspaceId = await ownerOfRun(pool, runId);
  if (workspaceId === undefined) return [];
  const { rows } = await pool.query<ListedRowError>({
    name: 'select-row-errors',
    text: selectRowErrorsStatement,
    values: [runId, after, limit, workspaceId],
  });
  return rows;
}

/** Deletes by the index sync_row_errors_time. */
const forgetRowErrorsStatement = `
  delete from sync_row_errors
  where (sync_row_errors.job_id, sync_row_errors.number) in (
    select old.job_id, old.number
    from sync_row_errors as old
    where old.occurred_at < now() - interval '30 days'
    limit 10000)`;

/** Deletes row errors older than 30 days, in slices of 10,000. */
export async function forgetRowErrors(pool: Pool): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(forgetRowErrorsStatement));
  } while (deleted === 10_000);
}
