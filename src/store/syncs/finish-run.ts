import type { Connection } from '../database.ts';

export type EndedStatus = 'success' | 'partial' | 'error' | 'config_error';

/** One row by primary key. What is in the lanes has to be accounted for first. */
const statement = `
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
  const text = message?.toWellFormed().replaceAll('\u0000', '\u2400') ?? null;
  const { rowCount } = await tx.query({
    name: 'finish-run',
    text: statement,
    values: [jobId, status, text],
  });
  return rowCount === 1;
}
