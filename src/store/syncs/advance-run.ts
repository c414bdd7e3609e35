import type { Connection } from '../database.ts';

export interface Advance {
  jobId: string;
  /** What the caller believes to have been read so far. */
  expected: number;
  read: number;
  synced: number;
  failed: number;
  lastTimestamp: string | undefined;
}

/**
 * One row by primary key, which is locked until COMMIT. `rows_read` only grows, with every chunk: a process that was
 * frozen and has missed a chunk finds another figure than the one that it knows, and nothing is advanced.
 */
const statement = `
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
  const { jobId, expected, read, synced, failed, lastTimestamp } = advance;
  const { rows } = await tx.query<{ cancelled: boolean }>({
    name: 'advance-run',
    text: statement,
    values: [jobId, expected, read, synced, failed, lastTimestamp ?? null],
  });
  return rows[0]?.cancelled;
}
