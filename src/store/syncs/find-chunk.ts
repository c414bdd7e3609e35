import type { Pool } from '../database.ts';
import type { StagedChunk } from './stage-chunk.ts';

/** By primary key. */
const statement = `
  select
    sync_chunks.envelope_ids as "envelopeIds",
    sync_chunks.entries,
    sync_chunks.rows,
    sync_chunks.progress
  from sync_chunks
  where sync_chunks.job_id = $1::uuid`;

/** What a run had handed to the lanes, or was about to, when it was left. */
export async function findChunk(pool: Pool, jobId: string): Promise<StagedChunk | undefined> {
  const { rows } = await pool.query<StagedChunk>({ name: 'find-chunk', text: statement, values: [jobId] });
  return rows[0];
}
