import { setTimeout as sleep } from 'node:timers/promises';
import { type Job, UnrecoverableError, Worker } from 'bullmq';
import type { Config } from '../src/config.ts';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';
import type { QueueConnection } from '../src/queue/connection.ts';
import { replayDeadLetters } from '../src/queue/dead-letters.ts';
import { DEAD_LETTER_QUEUE, type LaneProducer } from '../src/queue/lanes.ts';
import type { Database } from '../src/store/database.ts';
import { createShownDeadLetters, type DeadLetterJob } from './shown-dead-letters.ts';

export interface DeadLettersOptions {
  connection: QueueConnection;
  database: Pick<Database, 'pool'>;
  producer: LaneProducer;
  /** LANES. */
  lanes: number;
  log: Log;
  config: Pick<Config, 'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS'>;
}

export interface DeadLetters extends Service {
  /**
   * Shows dead letters on the dashboard; call it once they are committed. Each is shown once, however often
   * this is called. Never rejects: what cannot be shown now is shown by the next sweep.
   */
  show(ids: readonly string[]): Promise<void>;
}

/** Between two looks for dead letters that were committed and not shown. */
const SWEEP_INTERVAL_MS = 5000;

/** A replay in hand takes a few milliseconds, a sweep a second at most. */
const STOP_PATIENCE_MS = 1500;

/** BullMQ fails a job for good that stalls more often; a stall here says nothing about the dead letter. */
const MAX_STALLED = 1_000_000;

/**
 * The dead letters on the dashboard: each is a job of the dead-letter queue, which rests in `failed` with the
 * dead letter's reason, and a retry there replays it. The table is the truth, the queue only its picture.
 */
export function startDeadLetters(options: DeadLettersOptions): DeadLetters {
  const { connection, database, log, config } = options;
  const shown = createShownDeadLetters(connection, database);
  const worker = new Worker<DeadLetterJob>(
    DEAD_LETTER_QUEUE,
    (job) => workOff(job, options),
    {
      ...connection.options,
      concurrency: 1,
      lockDuration: config.LOCK_DURATION_MS,
      stalledInterval: config.STALLED_INTERVAL_MS,
      maxStalledCount: MAX_STALLED,
      // Both in their own unit: 500 ms after an error, 1 s of waiting for a job.
      runRetryDelay: 500,
      drainDelay: 1,
    },
    connection.factory,
  );
  /** A lost connection makes an error at every attempt: one of them is logged between two sweeps. */
  let warned = false;
  worker.on('error', (error) => {
    if (!warned) log.warn({ err: error }, 'the dead-letter queue did not answer');
    warned = true;
  });

  let timer: NodeJS.Timeout | undefined;
  let stopping = false;
  let sweeping = sweep();

  async function sweep(): Promise<void> {
    await shown.sweep().catch((error) => log.warn({ err: error }, 'dead letters could not be swept'));
    if (stopping) return;
    warned = false;
    timer = setTimeout(() => {
      sweeping = sweep();
    }, SWEEP_INTERVAL_MS);
  }

  return {
    name: 'dead letters',
    async show(ids) {
      await shown.show(ids).catch((error) => log.warn({ err: error }, 'dead letters could not be shown yet'));
    },
    async stop() {
      stopping = true;
      clearTimeout(timer);
      const stopped = worker
        .close()
        .then(() => sweeping)
        .then(shown.stop);
      // What is cut off is delivered again, and replays nothing twice; a queue that is away would be waited for.
      await Promise.race([stopped, sleep(STOP_PATIENCE_MS, undefined, { ref: false })]);
    },
  };
}

/**
 * BullMQ counts an attempt when a job fails or completes: a job that was never attempted has just been shown
 * and goes to `failed`, also when a worker died with it; any later start is a retry from the dashboard.
 */
async function workOff(job: Job<DeadLetterJob>, { log, ...context }: DeadLettersOptions): Promise<string> {
  if (job.attemptsMade === 0) throw new UnrecoverableError(job.data.reason);
  const { dead_letter_id, request_id } = job.data;
  const { enqueued, unknown } = await replayDeadLetters(context, [dead_letter_id]).catch((error) => {
    log.warn({ dead_letter_id, request_id, err: error }, 'a dead letter could not be replayed');
    throw new UnrecoverableError(
      `Not replayed, retry it again: ${error.message}. Failed first: ${job.data.reason}`,
    );
  });
  const outcome =
    enqueued.length > 0 ? 'in its lane again' : unknown.length > 0 ? 'unknown' : 'replayed before';
  log.info({ dead_letter_id, request_id, outcome }, 'dead letter replayed from the dashboard');
  return outcome;
}
