import { type Job, Worker } from 'bullmq';
import type { Config } from '../src/config.ts';
import type { Envelope } from '../src/jobs/envelope.ts';
import type { Log } from '../src/log.ts';
import type { QueueConnection } from '../src/queue/connection.ts';
import { laneName } from '../src/queue/lanes.ts';
import type { Coalescer } from './coalescer.ts';
import { ledgerKey } from './contract.ts';

/** BullMQ gives a job up for good that stalls more often than this; ours are never given up. */
const MAX_STALLED = 1_000_000;

/** Seconds that an idle lane waits for its next job: also the longest sleep after a graceful hand-over. */
const DRAIN_DELAY = 0.5;

/** Milliseconds before the lane asks again after an error of the queue. */
const RUN_RETRY_DELAY = 250;

/** Milliseconds between two lines about a queue that does not answer. */
const WARN_INTERVAL = 5000;

/**
 * Works one lane: takes its jobs one at a time and hands each to the coalescer. The processor never throws,
 * since a failed job would come back behind later ones.
 */
export function startLane(
  lane: number,
  connection: QueueConnection,
  coalescer: Coalescer,
  config: Pick<Config, 'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS'>,
  log: Log,
) {
  const worker = new Worker<Envelope>(
    laneName(lane),
    (job: Job<Envelope>) => coalescer.apply({ id: ledgerKey(job.id!), lane, envelope: job.data }),
    {
      ...connection.options,
      concurrency: 1,
      lockDuration: config.LOCK_DURATION_MS,
      stalledInterval: config.STALLED_INTERVAL_MS,
      maxStalledCount: MAX_STALLED,
      drainDelay: DRAIN_DELAY,
      runRetryDelay: RUN_RETRY_DELAY,
    },
    connection.factory,
  );
  let warned = Number.NEGATIVE_INFINITY;
  worker.on('error', (error) => {
    // BullMQ reports every try; one line says enough until it is over.
    if (performance.now() - warned < WARN_INTERVAL) return;
    warned = performance.now();
    log.warn({ err: error, lane }, 'the queue did not answer');
  });
  return worker;
}
