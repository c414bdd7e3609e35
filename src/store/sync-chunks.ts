import { type Connection, type Pool, storable } from './database.ts';
import { forLetters, lettersTable, letterValues, locateLetters } from './dead-letters.ts';
import { finishRun } from './sync-runs.ts';
import { inTransaction } from './transactions.ts';

/** A row as it is shown beside the reason why it had no effect. */
export interface ShownRow {
  /** Its place in the run, from 1. */
  number: number;
  updatedAt: string | null;
  identifier: string | null;
  /** Whom it names, in the texts that dead letters have; absent in a chunk of an earlier release. */
  identifiers?: string[];
  payload: string | null;
}

export interface RowError extends ShownRow {
  reason: string;
}

/** What is true once the chunk has taken effect, beside the rows that the workers refuse. */
interface ChunkProgress {
  /** Rows of the chunk. */
  rows: number;
  /** Rows of it that were refused before the lanes. */
  failed: number;
  /** Why; of as many of them as are kept. */
  errors: RowError[];
  /**
   * What was cut or left out of rows that go to the lanes; of as many of them as are kept. Absent when there is
   * nothing, and in a chunk of an earlier release.
   */
  warnings?: RowError[];
  /** The watermark behind the chunk: its newest UPDATED_AT. Absent while there was none. The name is a stored one. */
  lastTimestamp?: string;
  boundary: {
    /** The newest time is another than before the chunk: what was known of the old one is forgotten. */
    moved: boolean;
    /** Rows of the newest time by fingerprint, in hex. */
    newest: Record<string, number>;
    /** Rows without a readable time. */
    unreadable: Record<string, number>;
  };
}

/** A chunk as the outbox keeps it: what is handed to the lanes at once. */
export interface OutboxChunk {
  /** Keys of the ledger rows that say that the chunk has taken effect. */
  envelopeIds: string[];
  /** What the producer takes. */
  entries: unknown[];
  /** The row that each object was, by the object's id. */
  rows: Record<string, ShownRow>;
  progress: ChunkProgress;
}

/** How the outbox spells a row, in this order: processes of other releases read it as well. */
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

/** One row by primary key; none when the run has been cancelled. */
const addToOutboxStatement = `
  insert into sync_chunks (job_id, envelope_ids, entries, rows, progress)
  select sync_jobs.id, $2::uuid[], $3::json, $4::json, $5::json
  from sync_jobs
  where sync_jobs.id = $1::uuid
    and sync_jobs.cancelled_at is null
  on conflict (job_id) do nothing`;

/** @returns false: another process has put one there, or the run is cancelled */
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

/** By primary key. */
const findInOutboxStatement = `
  select
    sync_chunks.envelope_ids as "envelopeIds",
    sync_chunks.entries,
    sync_chunks.rows,
    sync_chunks.progress
  from sync_chunks
  where sync_chunks.job_id = $1::uuid`;

/** What the outbox has of a run: it was handed to the lanes, or was about to be, when the run was left. */
export async function findInOutbox(pool: Pool, jobId: string): Promise<OutboxChunk | undefined> {
  const { rows } = await pool.query<Stored>({
    name: 'find-in-outbox',
    text: findInOutboxStatement,
    values: [jobId],
  });
  return rows[0] && fromStored(rows[0]);
}

/** By primary key. */
const removeFromOutboxStatement = 'delete from sync_chunks where sync_chunks.job_id = $1::uuid';

export async function removeFromOutbox(tx: Connection, jobId: string): Promise<void> {
  await tx.query({ name: 'remove-from-outbox', text: removeFromOutboxStatement, values: [jobId] });
}

/** Days for which a chunk waits for a sync process. */
const CHUNK_DAYS = 7;

/** One chunk per run that has not ended. Locks the run first, as a process that works on it does. */
const lockStaleStatement = `
  select sync_jobs.id
  from sync_jobs
  where sync_jobs.finished_at is null
    and sync_jobs.id in (
      select sync_chunks.job_id from sync_chunks
      where sync_chunks.staged_at < now() - interval '${CHUNK_DAYS} days')
  limit 1
  for update of sync_jobs skip locked`;

/**
 * Ends runs whose chunk has waited for `CHUNK_DAYS` and erases the chunk. The watermark stays before the chunk, so the
 * next run reads its rows again.
 */
export async function endStaleRuns(pool: Pool): Promise<void> {
  const endOne = () =>
    inTransaction(pool, async (tx) => {
      const { rows } = await tx.query<{ id: string }>(lockStaleStatement);
      const [stale] = rows;
      if (!stale) return false;
      await removeFromOutbox(tx, stale.id);
      const message = `the run was interrupted for more than ${CHUNK_DAYS} days; the next run reads its last rows again`;
      return finishRun(tx, stale.id, { status: 'error', message });
    });
  while (await endOne()) {}
}

/** By primary key; there are few dead letters. */
const findRefusedStatement = `
  select letters.id, letters.reason
  from ${lettersTable}`;

/** Why objects could not be applied, by the id of each that could not. */
export async function findRefused(pool: Pool, objectIds: string[]): Promise<Map<string, string>> {
  const keys = await locateLetters(pool, objectIds);
  if (keys.length === 0) return new Map();
  const rows = await forLetters(pool, keys, async (some) => {
    const found = await pool.query<{ id: string; reason: string }>({
      name: 'find-refused',
      text: findRefusedStatement,
      values: letterValues(some),
    });
    return found.rows;
  });
  return new Map(rows.map(({ id, reason }) => [id, reason]));
}

/** By primary keys. */
const ownerOfRunStatement = `
  select integrations.workspace_id as "workspaceId"
  from sync_jobs
  join integrations on integrations.id = sync_jobs.integration_id
  where sync_jobs.id = $1::uuid`;

/** Whose a run is, by its integration; undefined: it is gone. */
async function ownerOfRun(database: Pick<Pool, 'query'>, jobId: string): Promise<string | undefined> {
  const { rows } = await database.query<{ workspaceId: string }>({
    name: 'owner-of-run',
    text: ownerOfRunStatement,
    values: [jobId],
  });
  return rows[0]?.workspaceId;
}

/** By primary key. */
const insertRowErrorsStatement = `
  insert into sync_row_errors (
    job_id, workspace_id, number, updated_at, identifier, payload, reason, identifiers, synced)
  select $1::uuid, $9::uuid, logged.number, logged.updated_at, logged.identifier, logged.payload, logged.reason,
    array(select json_array_elements_text(logged.identifiers)), logged.synced
  from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::json[], $8::boolean[])
    as logged (number, updated_at, identifier, payload, reason, identifiers, synced)
  on conflict do nothing`;

/** Writes down why rows had no effect, and what was cut or left out of rows that had one. */
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
      rows.map(({ identifiers = [] }) => JSON.stringify(identifiers.map(storable))),
      rows.map((_, place) => place >= failed.length),
      workspaceId,
    ],
  });
}

/** A row of a source that had no effect, or had one with a warning. */
export interface ListedRowError {
  number: number;
  synced: boolean;
  updatedAt: string | null;
  identifier: string | null;
  reason: string;
  payload: string | null;
}

/** By the primary key, through the view that leaves out what belongs to deleted users. */
const selectRowErrorsStatement = `
  select
    errors.number, errors.synced, errors.updated_at as "updatedAt", errors.identifier, errors.reason, errors.payload
  from kept_row_errors as errors
  where errors.workspace_id = $4::uuid and errors.job_id = $1::uuid and errors.number > $2::bigint
  order by errors.job_id, errors.number
  limit $3::integer`;

/** Rows of a run that failed or were synced with a warning, in the order of the source, behind the one of `after`. */
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

/** By the index sync_row_errors_time. */
const forgetRowErrorsStatement = `
  delete from sync_row_errors
  where (sync_row_errors.job_id, sync_row_errors.number) in (
    select old.job_id, old.number
    from sync_row_errors as old
    where old.occurred_at < now() - interval '30 days'
    limit 10000)`;

/** Forgets why rows failed 30 days ago, 10,000 at a time. */
export async function forgetRowErrors(pool: Pool): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(forgetRowErrorsStatement));
  } while (deleted === 10_000);
}
