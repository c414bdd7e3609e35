import { SourceError } from '../../src/integrations/source.ts';
import { nowDate } from '../../src/platform/clock.ts';
import { grouped } from '../../src/platform/format.ts';
import { messageOf } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import { TakenOver } from '../../src/queue/hand-over.ts';
import { causeOf } from '../../src/store/error-cause.ts';
import { findInOutbox } from '../../src/store/sync-chunks.ts';
import { advanceRun, type EndedStatus, findRun, finishRun, type Run } from '../../src/store/sync-runs.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { type Attempt, endedTheProcess } from '../jobs/job-attempts.ts';
import type { Checkpoint } from './checkpoint.ts';
import { createRunOutbox, type Leaving, type SyncContext } from './context.ts';
import { type ReadOn, readOn } from './read.ts';

/**
 * How work on a run has ended. `left`: another process continues it. `lost`: another process has it, or it
 * was removed. `failed`: the run can be resumed from its checkpoint.
 */
type Worked =
  | { kind: ReadOn | 'cancelled'; checkpoint: Checkpoint }
  | { kind: 'failed'; error: unknown; checkpoint: Checkpoint | undefined }
  | { kind: 'left' }
  | { kind: 'lost' };

/**
 * Resumes a run at its checkpoint and reads its source to the end. A run that was set aside is only ended.
 */
async function workRun(
  { jobId, attempt }: { jobId: string; attempt: Attempt | 'set aside' },
  context: SyncContext,
  leaving: Leaving,
): Promise<Worked> {
  let checkpoint: Checkpoint | undefined;
  try {
    const run = await settleLeftOver(jobId, context, leaving);
    if (!run) return { kind: 'lost' };
    checkpoint = checkpointOf(run);
    if (run.cancelled) return { kind: 'cancelled', checkpoint };
    if (attempt === 'set aside') throw new SourceError('failed', endedTheProcess('run'));
    const read = await readOn({ run, checkpoint, onProgress: attempt.progress }, context, leaving);
    checkpoint = read.checkpoint;
    if (read.kind === 'failed') throw read.error;
    return read.kind === 'left' ? { kind: 'left' } : { kind: read.kind, checkpoint };
  } catch (error) {
    if (error instanceof TakenOver) return { kind: 'lost' };
    if (leaving.now.aborted) return { kind: 'left' };
    return { kind: 'failed', error, checkpoint };
  }
}

/**
 * Adds the chunk that the previous process left in the outbox, possibly for a second time, before anything
 * else.
 */
async function settleLeftOver(
  jobId: string,
  context: SyncContext,
  leaving: Leaving,
): Promise<Run | undefined> {
  const { pool } = context;
  const run = await findRun(pool, jobId);
  const chunk = run && (await findInOutbox(pool, jobId));
  if (!chunk) return run;
  const { outbox } = createRunOutbox({ run, checkpoint: checkpointOf(run) }, context, leaving);
  outbox.resume(chunk);
  await outbox.advance();
  return findRun(pool, jobId);
}

function checkpointOf(run: Run): Checkpoint {
  return {
    jobId: run.id,
    integrationId: run.integrationId,
    read: run.rowsRead,
    synced: run.rowsSynced,
    failed: run.rowsFailed,
    watermark: run.watermark ?? undefined,
  };
}

interface RunEnd {
  status: EndedStatus;
  /** Message for the owner: the reason, or a note. */
  message: string | undefined;
}

type Ending = Exclude<Worked, { kind: 'left' | 'lost' }>;

/** Converts the result of a run to its status and message. */
function endOf(worked: Ending, maxRows: number, now: Date): RunEnd {
  switch (worked.kind) {
    case 'cancelled':
      return { status: 'error', message: 'cancelled by the operator' };
    case 'too many rows':
      return {
        status: 'error',
        message: `Limit Exceeded: a run reads at most ${grouped(maxRows)} rows; the next run continues after them`,
      };
    case 'failed': {
      const { error } = worked;
      if (error instanceof SourceError)
        return { status: error.reason === 'config' ? 'config_error' : 'error', message: error.message };
      return { status: 'error', message: `a mistake of the service: ${messageOf(error)}` };
    }
    default:
      return endOfSource(worked.checkpoint, now);
  }
}

/** Returns the end of a run that has read its whole source. A source without rows is a success. */
function endOfSource({ synced, failed, watermark }: Checkpoint, now: Date): RunEnd {
  const notes: string[] = [];
  if (failed > 0) notes.push(`${grouped(failed)} ${failed === 1 ? 'row' : 'rows'} failed`);
  if (watermark !== undefined && watermark > now.toISOString())
    notes.push(
      `an UPDATED_AT of ${watermark} is in the future: rows with an earlier UPDATED_AT are no longer read; give rows that must be read this time or a later one`,
    );
  return { status: statusOf(synced, failed), message: notes.join('; ') || undefined };
}

function statusOf(synced: number, failed: number): EndedStatus {
  if (failed === 0) return 'success';
  return synced === 0 ? 'error' : 'partial';
}

/**
 * Ends a run that is at its checkpoint and has no chunk in the lanes.
 * @returns whether the run was ended
 */
function endRun({ pool }: SyncContext, { jobId, read }: Checkpoint, end: RunEnd): Promise<boolean> {
  return inTransaction(pool, async (tx) => {
    // Locks the run first, so that the second statement sees a chunk that was added to the outbox meanwhile.
    const nothing = { read: 0, synced: 0, failed: 0, watermark: undefined };
    if ((await advanceRun(tx, { jobId, expected: read, ...nothing })) === undefined) return false;
    return finishRun(tx, jobId, end);
  });
}

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5000;
/** Milliseconds between two attempts while another run is suspected of ending its process. */
const SUSPECT_PAUSE_MS = 500;

/**
 * Processes a run to its end. Outages of Postgres or the queue are waited for; an error of the source or of
 * Penstock ends the run with its reason.
 *
 * @returns whether the run is over or belongs to another process; otherwise it must be given back
 */
export async function processRun(jobId: string, context: SyncContext, leaving: Leaving): Promise<boolean> {
  const { metrics, log } = context;
  const started = performance.now();
  let attempt: Attempt | 'set aside' | undefined;
  let isOver = false;
  try {
    return await workUntilLeft();
  } finally {
    if (attempt && attempt !== 'set aside') await attempt.end(isOver ? undefined : 'given back');
  }

  async function workUntilLeft(): Promise<boolean> {
    for (const nextPause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS); ; ) {
      let pause = SUSPECT_PAUSE_MS;
      try {
        const begun = attempt ?? (await context.attempts.begin('sync run', jobId));
        if (begun !== 'waits') {
          attempt = begun;
          pause = nextPause();
          const worked = await workRun({ jobId, attempt }, context, leaving);
          if (worked.kind === 'left') return false;
          if (worked.kind === 'lost') {
            log.info({ job_id: jobId }, 'sync run was skipped: it has ended, or another process has it');
            return true;
          }
          if (worked.kind === 'failed' && isTemporary(worked.error)) throw worked.error;
          isOver = await finish(worked);
          if (isOver) return true;
        }
      } catch (error) {
        if (leaving.soon.aborted) return false;
        metrics.retries.inc();
        log.warn({ err: error, job_id: jobId, retry_in_ms: pause }, 'run could not be resumed; will retry');
      }
      await rest(pause, leaving.soon);
      if (leaving.soon.aborted) return false;
    }
  }

  async function finish(worked: Exclude<Worked, { kind: 'left' | 'lost' }>): Promise<boolean> {
    const run = await findRun(context.pool, jobId);
    if (!run) return true;
    const end = endOf(worked, context.maxRows, nowDate());
    if (!worked.checkpoint || !(await endRun(context, worked.checkpoint, end))) return false;
    metrics.noteRun(run.name, end.status);
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
    if (failed) log.error(unexpected ? { ...line, err: worked.error } : line, 'sync run failed');
    else if (end.message !== undefined) log.warn(line, 'sync run finished with problems');
    else log.info(line, 'sync run finished');
    return true;
  }
}

function aboutRun({ id, integrationId, workspaceId }: Run) {
  return { job_id: id, integration_id: integrationId, workspace_id: workspaceId };
}

/** Returns whether a retry may succeed. */
function isTemporary(error: unknown): boolean {
  return !(error instanceof SourceError) && causeOf(error) !== 'object';
}
