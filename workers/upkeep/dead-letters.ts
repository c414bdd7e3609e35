import { setTimeout as sleep } from 'node:timers/promises';
import type { BulkJobOptions, Job } from 'bullmq';
import { validate as isVersionedUuid } from 'uuid';
import type { Config } from '../../src/platform/config.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll } from '../../src/platform/poll.ts';
import { Queue, UnrecoverableError, Worker } from '../../src/queue/bullmq.ts';
import { forgetEvents, removeFinished } from '../../src/queue/bullmq-queues.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { type DeadLetterJob, replayDeadLetters, toDeadLetterJob } from '../../src/queue/dead-letters.ts';
import { DEAD_LETTER_QUEUE, type LaneProducer } from '../../src/queue/lanes.ts';
import { drainDelayOf, NOT_RUNNING, runWorker } from '../../src/queue/open-worker.ts';
import type { Actor } from '../../src/store/audit.ts';
import type { Database } from '../../src/store/database.ts';
import { type DeadLetter, selectDeadLetters, selectLatestWaiting } from '../../src/store/dead-letters.ts';

/**
 * Maximum number of dead letters in the queue that the console shows; the command line lists all of them. The
 * Postgres queue scans all kept jobs whenever one fails: 3.5 ms with 2,000 jobs, and 0.6 ms in Redis.
 */
const MAX_JOBS = 2000;

/**
 * Number of sweeps between two complete refreshes, which is ten minutes: the maximum time for which the
 * console lacks a dead letter that the queue has lost.
 */
const SWEEPS_TO_REFRESH = 120;

/** Number of dead letters in one statement and one add. */
const CHUNK = 100;

/**
 * Maximum bytes of an object in a job. Thousands of jobs are kept, and the process that shows them also
 * applies other objects. `penstock` shows complete objects.
 */
const SHOWN_BYTES = 8192;

/**
 * Options of the jobs. A replayed dead letter leaves no job in the queue; the console shows it from the
 * table.
 */
const jobOptions: BulkJobOptions = {
  attempts: 1,
  removeOnComplete: true,
  removeOnFail: { count: MAX_JOBS },
  // The reason is sufficient, and the stack would be Penstock's own.
  stackTraceLimit: 0,
};

/**
 * Mirrors the waiting dead letters in the dead-letter queue. A dead letter gets a new job with each failed
 * replay. Adding the same job twice creates one job, so any number of workers may do this.
 */
export function createShownDeadLetters(connection: QueueConnection, database: Pick<Database, 'pool'>) {
  const queue = new Queue<DeadLetterJob>(
    DEAD_LETTER_QUEUE,
    { ...connection.options, streams: { events: { maxLen: 100 } } },
    connection.factory,
  );
  queue.on('error', () => {});
  /** Jobs that this process has added, by id, while their dead letters wait or are being replayed. */
  const shown = new Map<string, { id: string; replays: number }>();

  let sweeps = 0;

  /**
   * Adds jobs for the given dead letters that wait, unless the queue already has the maximum number of
   * waiting jobs.
   */
  async function show(ids: readonly string[]): Promise<void> {
    for (let start = 0; start < ids.length; start += CHUNK) {
      if ((await queue.getWaitingCount()) >= MAX_JOBS) return;
      const deadLetters = await selectDeadLetters(
        database.pool,
        ids.slice(start, start + CHUNK),
        SHOWN_BYTES,
      );
      const waiting = deadLetters.filter(({ state }) => state === 'waiting');
      await queue.addBulk(waiting.map(toJob));
      for (const { id, replays } of waiting) shown.set(jobId(id, replays), { id, replays });
    }
  }

  /**
   * Adds jobs for dead letters that were committed without a job, and removes jobs of dead letters that were
   * replayed by other means. The first sweep and every refresh add jobs for all waiting dead letters of the
   * table; existing jobs stay unchanged.
   */
  async function sweep(): Promise<void> {
    // Take the list before the query, which does not include dead letters that are added while it runs.
    const keysBefore = [...shown.keys()];
    const waiting = await selectLatestWaiting(database.pool, MAX_JOBS);
    const refresh = sweeps++ % SWEEPS_TO_REFRESH === 0;
    const missing = waiting.filter(({ id, replays }) => refresh || !shown.has(jobId(id, replays)));
    await show(missing.map(({ id }) => id));
    const present = new Set(waiting.map(({ id, replays }) => jobId(id, replays)));
    await forget(keysBefore.filter((key) => !present.has(key)));
    if (refresh) await forgetErased();
    await removeFinished(queue);
    await forgetEvents(connection, queue);
  }

  /** Removes jobs whose dead letters were erased with their user, whichever process has added them. */
  async function forgetErased(): Promise<void> {
    // Start with the last page: removing a job then does not move the jobs of earlier pages.
    const last = Math.ceil(Math.min(await queue.getFailedCount(), MAX_JOBS) / CHUNK) - 1;
    for (let page = last; page >= 0; page--) {
      const chunk = await queue.getFailed(page * CHUNK, (page + 1) * CHUNK - 1);
      const ids = chunk.map(({ data }) => data.dead_letter_id).filter((id) => isVersionedUuid(id));
      const kept = new Set((await selectDeadLetters(database.pool, ids, 0)).map(({ id }) => id));
      for (const job of chunk) if (!kept.has(job.data.dead_letter_id)) await job.remove();
    }
  }

  /** Removes jobs of dead letters that were resolved, or that have a job for a later replay. */
  async function forget(keys: string[]): Promise<void> {
    for (let start = 0; start < keys.length; start += CHUNK) {
      const chunk = keys.slice(start, start + CHUNK);
      const ids = chunk.map((key) => shown.get(key)!.id);
      const rowById = new Map((await selectDeadLetters(database.pool, ids, 0)).map((row) => [row.id, row]));
      for (const key of chunk) {
        const { id, replays } = shown.get(key)!;
        const row = rowById.get(id);
        // The replay is in progress. If it does not reach its lane, this job is needed to retry it.
        if (row?.state === 'replaying' && row.replays === replays + 1) continue;
        // The dead letter still waits, but later ones have taken its place in the query. The limit of the
        // queue applies to its job.
        const crowdedOut = row?.state === 'waiting' && row.replays === replays;
        if (!crowdedOut) await removeIfFailed(key);
        shown.delete(key);
      }
    }
  }

  async function removeIfFailed(key: string): Promise<void> {
    const job = await queue.getJob(key);
    if (await job?.isFailed()) await job?.remove();
  }

  return { show, sweep, forgetErased, stop: () => queue.close() };
}

function toJob(letter: DeadLetter) {
  const { id, kind, replays, failedAt } = letter;
  return {
    name: kind,
    data: toDeadLetterJob(letter),
    opts: { ...jobOptions, jobId: jobId(id, replays), timestamp: failedAt.getTime() },
  };
}

/**
 * Returns the job id of a dead letter for its current number of replays. BullMQ does not allow a colon in an
 * id.
 */
function jobId(id: string, replays: number): string {
  return `${id}_${replays}`;
}

interface DeadLettersOptions {
  connection: QueueConnection;
  database: Pick<Database, 'pool'>;
  producer: LaneProducer;
  /** Value of LANES. */
  lanes: number;
  log: Log;
  config: Pick<Config, 'LOCK_DURATION_MS'>;
}

interface DeadLetters extends Service {
  /**
   * Adds jobs for dead letters that were committed. Each dead letter has one job, however often this is
   * called. Never rejects: the next sweep adds the jobs that could not be added now.
   */
  show(ids: readonly string[]): Promise<void>;
  /**
   * Removes the jobs of dead letters that were erased with their user. Never rejects: a later sweep repeats
   * it.
   */
  forgetErased(): Promise<void>;
}

/** Milliseconds between two searches for committed dead letters without a job. */
const SWEEP_INTERVAL_MS = 5000;

/**
 * Milliseconds to wait for the stop. A replay in progress takes a few milliseconds, a sweep at most a second.
 */
const STOP_TIMEOUT_MS = 1500;

/** BullMQ fails a job permanently that stalls more often. A stall here has no meaning for the dead letter. */
const MAX_STALLED = 1_000_000;

/**
 * Milliseconds before BullMQ asks again after an error, and seconds for which an idle worker waits for its
 * next job.
 */
const RUN_RETRY_DELAY_MS = 500;
const DRAIN_DELAY_SECONDS = 1;

/**
 * Milliseconds between two searches for replays whose process ended. They are not urgent, and each search
 * costs statements.
 */
const STALLED_INTERVAL_MS = 10_000;

/**
 * Starts the dead-letter queue, which the console shows: each dead letter is a job that stays in `failed`
 * with its reason, and retrying the job replays the dead letter. The table is authoritative; the queue only
 * mirrors it.
 */
export function startDeadLetters(options: DeadLettersOptions): DeadLetters {
  const { connection, database, log, config } = options;
  const shown = createShownDeadLetters(connection, database);
  /**
   * Whether an error was logged since the last sweep. A lost connection emits an error with every attempt.
   */
  let warned = false;

  function openWorker() {
    const opened = new Worker<DeadLetterJob>(
      DEAD_LETTER_QUEUE,
      (job) => workOff(job, options),
      {
        ...connection.options,
        ...NOT_RUNNING,
        concurrency: 1,
        lockDuration: config.LOCK_DURATION_MS,
        stalledInterval: STALLED_INTERVAL_MS,
        maxStalledCount: MAX_STALLED,
        runRetryDelay: RUN_RETRY_DELAY_MS,
        drainDelay: drainDelayOf(connection, {
          atLeast: DRAIN_DELAY_SECONDS,
          stalledInterval: STALLED_INTERVAL_MS,
        }),
      },
      connection.factory,
    );
    opened.on('error', (error) => {
      if (!warned) log.warn({ err: error }, 'dead-letter queue did not answer');
      warned = true;
    });
    return opened;
  }

  const worker = runWorker(openWorker);

  const sweeps = poll(
    SWEEP_INTERVAL_MS,
    async () => {
      warned = false;
      await shown.sweep();
    },
    (error) => log.warn({ err: error }, 'cleanup of dead letters failed; will retry'),
  );
  void sweeps.now();

  return {
    name: 'dead letters',
    async forgetErased() {
      await shown
        .forgetErased()
        .catch((error) =>
          log.warn({ err: error }, 'erased dead letters could not be removed from the queue; will retry'),
        );
    },
    async show(ids) {
      await shown
        .show(ids)
        .catch((error) =>
          log.warn({ err: error }, 'dead letters could not be copied to the dead-letter queue; will retry'),
        );
    },
    async stop() {
      const swept = sweeps.stop();
      const stopped = worker
        .close()
        .then(() => swept)
        .then(shown.stop);
      // Interrupted work is delivered again and has no second effect. Do not wait for a queue that is
      // unavailable.
      await Promise.race([stopped, sleep(STOP_TIMEOUT_MS, undefined, { ref: false })]);
    },
  };
}

/** Actor of a replay. A job only states that it was retried, not by whom. */
const RETRY: Actor = { kind: 'nobody', name: 'retried job', via: 'dashboard' };

/**
 * Processes a job. BullMQ counts an attempt when a job fails or completes. A job without an attempt was just
 * added and goes to `failed`, also if a worker died with it. Any later start is a retry from the console.
 */
async function workOff(job: Job<DeadLetterJob>, { log, ...context }: DeadLettersOptions): Promise<string> {
  if (job.attemptsMade === 0) throw new UnrecoverableError(job.data.reason);
  const { dead_letter_id, request_id } = job.data;
  const replay = { ...context, actor: RETRY };
  const { enqueued, unknown } = await replayDeadLetters(replay, [dead_letter_id]).catch((error) => {
    log.warn({ dead_letter_id, request_id, err: error }, 'dead letter could not be replayed');
    throw new UnrecoverableError(
      `Not replayed, retry it again: ${error.message}. Failed first: ${job.data.reason}`,
    );
  });
  const result =
    enqueued.length > 0 ? 'in its lane again' : unknown.length > 0 ? 'unknown' : 'replayed before';
  log.info({ dead_letter_id, request_id, outcome: result }, 'dead letter replayed from the console');
  return result;
}
