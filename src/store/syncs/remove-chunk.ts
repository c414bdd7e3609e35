import type { Connection } from '../database.ts';

/** By primary key. */
const statement = 'delete from sync_chunks where sync_chunks.job_id = $1::uuid';

export async function removeChunk(tx: Connection, jobId: string): Promise<void> {
  await tx.query({ name: 'remove-chunk', text: statement, values: [jobId] });
}
