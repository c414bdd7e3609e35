import { SourceError } from '../../src/integrations/source.ts';
import { nowDate } from '../../src/platform/clock.ts';
import { grouped } from '../../src/platform/format.ts';
import { type Log, messageOf } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import { TakenOver } from '../../src/queue/hand-over.ts';
import type { Pool } from '../../src/store/database.ts';
import { causeOf } from '../../src/store/error-cause.ts';
import { findInOutbox } from '../../src/store/sync-chunks.ts';
import { advanceRun, type EndedStatus, findRun, finishRun, type Run } from '../../src/store/sync-runs.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { type Attempt, endedTheProcess, type JobAttempts } from '../jobs/job-attempts.ts';
import type { Checkpoint } from './checkpoint.ts';
import type { SyncMetrics } from './metrics.ts';
import type { ReadOn, RunReader } from './read.ts';
import type { Leaving, RunOutboxes } from './run-outbox.ts';

/**
 * How work on a run has ended. `left`: another process continues it. `lost`: another process has it, or it
 * was removed. `failed`: the run can be resumed from its checkpoint.
 */
type Worked =
  | { kind: ReadOn | 'cancelled'; checkpoint: Checkpoint }
  | { kind: 'failed'; error: unknown; checkpoint: Checkpoint | undefined }
  | { kind: 'left' }
  | { kind: 'lost' };

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
function endRun(pool: Pool, { jobId, read }: Checkpoint, end: RunEnd): Promise<boolean> {
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

/** Works on the runs that the queue assigns to this process. */
export class RunWorker {
  readonly #pool: Pool;
  readonly #outboxes: RunOutboxes;
  readonly #reader: RunReader;
  readonly #attempts: Pick<JobAttempts, 'begin'>;
  readonly #metrics: Pick<SyncMetrics, 'retries' | 'noteRun'>;
  readonly #log: Log;

  constructor(parts: {
    pool: Pool;
    outboxes: RunOutboxes;
    reader: RunReader;
    /** Finds runs that end their process. */
    attempts: Pick<JobAttempts, 'begin'>;
    metrics: Pick<SyncMetrics, 'retries' | 'noteRun'>;
    log: Log;
  }) {
    this.#pool = parts.pool;
    this.#outboxes = parts.outboxes;
    this.#reader = parts.reader;
    this.#attempts = parts.attempts;
    this.#metrics = parts.metrics;
    this.#log = parts.log;
  }

  /**
   * Processes a run to its end. Outages of Postgres or the queue are waited for; an error of the source or of
   * Penstock ends the run with its reason.
   *
   * @returns whether the run is over or belongs to another process; otherwise it must be given back
   */
  async process(jobId: string, leaving: Leaving): Promise<boolean> {
    const started = performance.now();
    let attempt: Attempt | 'set aside' | undefined;
    let isOver = false;
    try {
      for (const nextPause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS); ; ) {
        let pause = SUSPECT_PAUSE_MS;
        try {
          const begun = attempt ?? (await this.#attempts.begin('sync run', jobId));
          if (begun !== 'waits') {
            attempt = begun;
            pause = nextPause();
            const worked = await this.#work(jobId, attempt, leaving);
            if (worked.kind === 'left') return false;
            if (worked.kind === 'lost') {
              this.#log.info(
                { job_id: jobId },
                'sync run was skipped: it has ended, or another process has it',
              );
              return true;
            }
            if (worked.kind === 'failed' && isTemporary(worked.error)) throw worked.error;
            isOver = await this.#finish(jobId, worked, started);
            if (isOver) return true;
          }
        } catch (error) {
          if (leaving.soon.aborted) return false;
          this.#metrics.retries.inc();
          this.#log.warn(
            { err: error, job_id: jobId, retry_in_ms: pause },
            'run could not be resumed; will retry',
          );
        }
        await rest(pause, leaving.soon);
        if (leaving.soon.aborted) return false;
      }
    } finally {
      if (attempt && attempt !== 'set aside') await attempt.end(isOver ? undefined : 'given back');
    }
  }

  /**
   * Resumes a run at its checkpoint and reads its source to the end. A run that was set aside is only ended.
   */
  async #work(jobId: string, attempt: Attempt | 'set aside', leaving: Leaving): Promise<Worked> {
    let checkpoint: Checkpoint | undefined;
    try {
      const run = await this.#settleLeftOver(jobId, leaving);
      if (!run) return { kind: 'lost' };
      checkpoint = checkpointOf(run);
      if (run.cancelled) return { kind: 'cancelled', checkpoint };
      if (attempt === 'set aside') throw new SourceError('failed', endedTheProcess('run'));
      const read = await this.#reader.read({ run, checkpoint, onProgress: attempt.progress }, leaving);
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
  async #settleLeftOver(jobId: string, leaving: Leaving): Promise<Run | undefined> {
    const run = await findRun(this.#pool, jobId);
    const chunk = run && (await findInOutbox(this.#pool, jobId));
    if (!chunk) return run;
    const { outbox } = this.#outboxes.open({ run, checkpoint: checkpointOf(run) }, leaving);
    outbox.resume(chunk);
    await outbox.advance();
    return findRun(this.#pool, jobId);
  }

  /** @returns whether the run is over */
  async #finish(jobId: string, worked: Ending, started: number): Promise<boolean> {
    const run = await findRun(this.#pool, jobId);
    if (!run) return true;
    const end = endOf(worked, this.#reader.maxRows, nowDate());
    if (!worked.checkpoint || !(await endRun(this.#pool, worked.checkpoint, end))) return false;
    this.#metrics.noteRun(run.name, end.status);
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
    if (failed) this.#log.error(unexpected ? { ...line, err: worked.error } : line, 'sync run failed');
    else if (end.message !== undefined) this.#log.warn(line, 'sync run finished with problems');
    else this.#log.info(line, 'sync run finished');
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
