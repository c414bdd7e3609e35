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
 * Most dead letters on the dashboard; the admin command lists all of them. The Postgres queue looks through
 * all that are kept whenever one goes to `failed`: 3.5 ms at 2000, and Redis needs 0.6 ms.
 */
const KEPT = 2000;

/** Ten minutes of sweeps: how long the dashboard may lack a dead letter that the queue itself has lost. */
const SWEEPS_TO_REFRESH = 120;

/** Dead letters in one statement and one add. */
const CHUNK = 100;

/**
 * Bytes up to which an object is shown: thousands are kept, and the process that shows them applies others meanwhile.
 * `penstock` shows all of it.
 */
const SHOWN_BYTES = 8192;

/** A replayed dead letter leaves nothing in the queue; the console shows it from the table. */
const jobOptions: BulkJobOptions = {
  attempts: 1,
  removeOnComplete: true,
  removeOnFail: { count: KEPT },
  // The reason says it all; the stack would be ours.
  stackTraceLimit: 0,
};

/**
 * Keeps the dead-letter queue a picture of the dead letters that wait. A dead letter becomes a new job with
 * each replay that fails; the same job added twice is one job, so any number of workers may do this.
 */
export function createShownDeadLetters(connection: QueueConnection, database: Pick<Database, 'pool'>) {
  const queue = new Queue<DeadLetterJob>(
    DEAD_LETTER_QUEUE,
    { ...connection.options, streams: { events: { maxLen: 100 } } },
    connection.factory,
  );
  queue.on('error', () => {});
  /** The jobs that this process has added, by their ids, as long as their dead letters wait or are replayed. */
  const shown = new Map<string, { id: string; replays: number }>();

  let sweeps = 0;

  /** Shows those of the dead letters that wait; while the queue is behind with as many as it keeps, none. */
  async function show(ids: readonly string[]): Promise<void> {
    for (let start = 0; start < ids.length; start += CHUNK) {
      if ((await queue.getWaitingCount()) >= KEPT) return;
      const found = await selectDeadLetters(database.pool, ids.slice(start, start + CHUNK), SHOWN_BYTES);
      const waiting = found.filter(({ state }) => state === 'waiting');
      await queue.addBulk(waiting.map(toJob));
      for (const { id, replays } of waiting) shown.set(jobId(id, replays), { id, replays });
    }
  }

  /**
   * Shows what was committed and never shown, and takes away what was replayed by other means. The first
   * time, and now and then, it trusts the table alone and shows whatever waits: what is there stays as it is.
   */
  async function sweep(): Promise<void> {
    // Before the look: what is shown while it lasts is not among what it finds.
    const known = [...shown.keys()];
    const waiting = await selectLatestWaiting(database.pool, KEPT);
    const refresh = sweeps++ % SWEEPS_TO_REFRESH === 0;
    const missing = waiting.filter(({ id, replays }) => refresh || !shown.has(jobId(id, replays)));
    await show(missing.map(({ id }) => id));
    const present = new Set(waiting.map(({ id, replays }) => jobId(id, replays)));
    await forget(known.filter((key) => !present.has(key)));
    if (refresh) await forgetErased();
    await removeFinished(queue);
    await forgetEvents(connection, queue);
  }

  /** Takes the jobs away whose dead letters are gone with their user, whichever process has shown them. */
  async function forgetErased(): Promise<void> {
    // From the last: what is taken away moves none of those in front.
    const last = Math.ceil(Math.min(await queue.getFailedCount(), KEPT) / CHUNK) - 1;
    for (let page = last; page >= 0; page--) {
      const chunk = await queue.getFailed(page * CHUNK, (page + 1) * CHUNK - 1);
      const ids = chunk.map(({ data }) => data.dead_letter_id).filter((id) => isVersionedUuid(id));
      const kept = new Set((await selectDeadLetters(database.pool, ids, 0)).map(({ id }) => id));
      for (const job of chunk) if (!kept.has(job.data.dead_letter_id)) await job.remove();
    }
  }

  /** Takes the jobs of dead letters away that are settled, or are shown with a later replay. */
  async function forget(keys: string[]): Promise<void> {
    for (let start = 0; start < keys.length; start += CHUNK) {
      const chunk = keys.slice(start, start + CHUNK);
      const ids = chunk.map((key) => shown.get(key)!.id);
      const found = new Map((await selectDeadLetters(database.pool, ids, 0)).map((row) => [row.id, row]));
      for (const key of chunk) {
        const { id, replays } = shown.get(key)!;
        const row = found.get(id);
        // Its replay is on its way; should it not have reached its lane, this job is how it is retried.
        if (row?.state === 'replaying' && row.replays === replays + 1) continue;
        // Still waiting, but later ones have taken its place here: the queue's own bound decides.
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

/** Names one stay of one dead letter in `waiting`. BullMQ allows no colon in an id. */
function jobId(id: string, replays: number): string {
  return `${id}_${replays}`;
}

export interface DeadLettersOptions {
  connection: QueueConnection;
  database: Pick<Database, 'pool'>;
  producer: LaneProducer;
  /** LANES. */
  lanes: number;
  log: Log;
  config: Pick<Config, 'LOCK_DURATION_MS'>;
}

export interface DeadLetters extends Service {
  /**
   * Shows dead letters on the dashboard; call it once they are committed. Each is shown once, however often
   * this is called. Never rejects: what cannot be shown now is shown by the next sweep.
   */
  show(ids: readonly string[]): Promise<void>;
  /** Removes the jobs of dead letters that were erased with their user. Never rejects: a later sweep does it again. */
  forgetErased(): Promise<void>;
}

/** Between two looks for dead letters that were committed and not shown. */
const SWEEP_INTERVAL_MS = 5000;

/** A replay in hand takes a few milliseconds, a sweep a second at most. */
const STOP_PATIENCE_MS = 1500;

/** BullMQ fails a job for good that stalls more often; a stall here says nothing about the dead letter. */
const MAX_STALLED = 1_000_000;

/** Time before BullMQ asks again after an error, and for which an idle worker waits for its next job. */
const RUN_RETRY_DELAY_MS = 500;
const DRAIN_DELAY_SECONDS = 1;

/** Milliseconds between two searches for replays whose process ended. Nobody waits for them, and each search costs statements. */
const STALLED_INTERVAL_MS = 10_000;

/**
 * The dead letters on the dashboard: each is a job of the dead-letter queue, which rests in `failed` with the
 * dead letter's reason, and a retry there replays it. The table is the truth, the queue only its picture.
 */
export function startDeadLetters(options: DeadLettersOptions): DeadLetters {
  const { connection, database, log, config } = options;
  const shown = createShownDeadLetters(connection, database);
  /** A lost connection makes an error at every attempt: one of them is logged between two sweeps. */
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
      // What is cut off is delivered again, and replays nothing twice; a queue that is away would be waited for.
      await Promise.race([stopped, sleep(STOP_PATIENCE_MS, undefined, { ref: false })]);
    },
  };
}

/** A job says that it was retried, and not by whom. */
const RETRY: Actor = { kind: 'nobody', name: 'retried job', via: 'dashboard' };

/**
 * BullMQ counts an attempt when a job fails or completes. A job that was never attempted has just been shown and goes
 * to `failed`, also when a worker died with it. Any later start is a retry from the dashboard.
 */
async function workOff(job: Job<DeadLetterJob>, { log, ...context }: DeadLettersOptions): Promise<string> {
  if (job.attemptsMade === 0) throw new UnrecoverableError(job.data.reason);
  const { dead_letter_id, request_id } = job.data;
  const asked = { ...context, actor: RETRY };
  const { enqueued, unknown } = await replayDeadLetters(asked, [dead_letter_id]).catch((error) => {
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
