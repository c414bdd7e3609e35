import { setTimeout as sleep } from 'node:timers/promises';
import { SourceError } from '../../src/integrations/source.ts';
import { findRun, type Run } from '../../src/store/syncs/find-run.ts';
import { classify } from '../outcome.ts';
import type { Leaving, SyncContext } from './context.ts';
import { endOf, endRun } from './end-run.ts';
import { type Worked, workRun } from './work-run.ts';

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;

/**
 * Works a run to its end. What is Postgres's or the queue's trouble is waited out here; what is the source's, or ours,
 * ends the run with its reason.
 *
 * @returns whether the run is over, or somebody else's; otherwise it has to be given back
 */
export async function workOff(jobId: string, context: SyncContext, leaving: Leaving): Promise<boolean> {
  const { metrics, log } = context;
  const started = performance.now();
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    try {
      const worked = await workRun(jobId, context, leaving);
      if (worked.kind === 'left') return false;
      if (worked.kind === 'lost') {
        log.info({ job_id: jobId }, 'a run has ended, or is worked elsewhere');
        return true;
      }
      if (worked.kind === 'failed' && isPassing(worked.error)) throw worked.error;
      if (await finish(worked)) return true;
    } catch (error) {
      if (leaving.soon.aborted) return false;
      metrics.retries.inc();
      log.warn({ err: error, job_id: jobId, retry_in_ms: pause }, 'a run could not be gone on with yet');
    }
    await sleep(pause, undefined, { signal: leaving.soon }).catch(() => {});
    if (leaving.soon.aborted) return false;
  }

  async function finish(worked: Exclude<Worked, { kind: 'left' | 'lost' }>): Promise<boolean> {
    const run = await findRun(context.pool, jobId);
    if (!run) return true;
    const end = endOf(worked, context.maxRows, new Date());
    if (!worked.account || !(await endRun(context, worked.account, end))) return false;
    metrics.runs.inc({ status: end.status });
    const failed = end.status === 'error' || end.status === 'config_error';
    const line = {
      ...aboutRun(run),
      outcome: end.status,
      ...(end.message !== undefined && { reason: end.message }),
      rows_read: run.rowsRead,
      rows_synced: run.rowsSynced,
      rows_failed: run.rowsFailed,
      ms: Math.round(performance.now() - started),
    };
    const unexpected = worked.kind === 'failed' && !(worked.error instanceof SourceError);
    if (failed) log.error(unexpected ? { ...line, err: worked.error } : line, 'sync');
    else if (end.message !== undefined) log.warn(line, 'sync');
    else log.info(line, 'sync');
    return true;
  }
}

function aboutRun({ id, integrationId, workspaceId }: Run) {
  return { job_id: id, integration_id: integrationId, workspace_id: workspaceId };
}

/** Whether the same may go well in a while. */
function isPassing(error: unknown): boolean {
  return !(error instanceof SourceError) && classify(error) === 'transient';
}
