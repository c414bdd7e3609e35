import type { Connection } from '../database.ts';

/** A row as it is shown beside the reason why it had no effect. */
export interface ShownRow {
  /** Its place in the run, from 1. */
  number: number;
  updated_at: string | null;
  identifier: string | null;
  /** Whom it names, in the texts that dead letters have; absent in a chunk of an earlier release. */
  identifiers?: string[];
  payload: string | null;
}

export interface RowError extends ShownRow {
  reason: string;
}

/** What is true once the chunk has taken effect, beside the rows that the workers refuse. */
export interface ChunkProgress {
  /** Rows of the chunk. */
  rows: number;
  /** Rows of it that were refused before the lanes. */
  failed: number;
  /** Why; of as many of them as are kept. */
  errors: RowError[];
  /** The newest UPDATED_AT that has been processed; absent while there was none. */
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

/** What is handed to the lanes at once. */
export interface StagedChunk {
  /** Keys of the ledger rows that say that the chunk has taken effect. */
  envelopeIds: string[];
  /** What the producer takes. */
  entries: unknown[];
  /** The row that each object was, by the object's id. */
  rows: Record<string, ShownRow>;
  progress: ChunkProgress;
}

/** One row by primary key; none when the run has been cancelled. */
const statement = `
  insert into sync_chunks (job_id, envelope_ids, entries, rows, progress)
  select sync_jobs.id, $2::uuid[], $3::json, $4::json, $5::json
  from sync_jobs
  where sync_jobs.id = $1::uuid
    and sync_jobs.cancelled_at is null
  on conflict (job_id) do nothing`;

/** @returns whether it is staged: another process has staged one, or the run is cancelled, if not */
export async function stageChunk(tx: Connection, jobId: string, chunk: StagedChunk): Promise<boolean> {
  const { envelopeIds, entries, rows, progress } = chunk;
  const { rowCount } = await tx.query({
    name: 'stage-chunk',
    text: statement,
    values: [jobId, envelopeIds, JSON.stringify(entries), JSON.stringify(rows), JSON.stringify(progress)],
  });
  return rowCount === 1;
}
