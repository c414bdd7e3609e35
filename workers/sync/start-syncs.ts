import { setTimeout as sleep } from 'node:timers/promises';
import { type Job, WaitingError, Worker } from 'bullmq';
import type { Config } from '../../src/config.ts';
import { type ScheduledJobData, SYNC_QUEUE, type SyncJobData, syncJobs } from '../../src/jobs/syncs.ts';
import type { Service } from '../../src/lifecycle.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import type { SyncQueue } from '../../src/queue/syncs.ts';
import type { SyncContext } from './context.ts';
import { startScheduled } from './start-scheduled.ts';
import { workOff } from './work-off.ts';

/** BullMQ gives a job up for good that stalls more often; a run is never given up. */
const MAX_STALLED = 1_000_000;

/** Seconds that an idle process waits for its next job, and milliseconds before it asks again after an error. */
const DRAIN_DELAY = 1;
const RUN_RETRY_DELAY = 500;

/** Milliseconds between two lines about a queue that does not answer. */
const WARN_INTERVAL = 5000;

export interface SyncsOptions {
  connection: QueueConnection;
  syncs: Pick<SyncQueue, 'add'>;
  context: SyncContext;
  config: Pick<
    Config,
    'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS' | 'SHUTDOWN_TIMEOUT_MS' | 'SYNC_CONCURRENCY'
  >;
}

/**
 * Works the queue of sync runs, several at a time. The tables know what a run is; a job only says that there is one.
 * Asked to stop, each run ends its chunk and goes back to the head of the queue.
 */
export function startSyncs({ connection, syncs, context, config }: SyncsOptions): Service {
  const { log, metrics } = context;
  const [soon, now] = [new AbortController(), new AbortController()];
  const leaving = { soon: soon.signal, now: now.signal };

  async function work(job: Job<SyncJobData | ScheduledJobData>, token?: string): Promise<void> {
    metrics.working.inc();
    try {
      if (await workJob(job)) return;
    } finally {
      metrics.working.dec();
    }
    // Refused, it belongs to another process by now, or to whoever finds it when its lock has run out.
    await job.moveToWait(token).catch(() => {});
    throw new WaitingError();
  }

  /** @returns false: it was left in the middle */
  async function workJob({ name, data }: Job<SyncJobData | ScheduledJobData>): Promise<boolean> {
    if (name === syncJobs.scheduled)
      return startScheduled((data as ScheduledJobData).integration_id, context, syncs, leaving.soon);
    return workOff((data as SyncJobData).job_id, context, leaving);
  }

  const worker = new Worker<SyncJobData | ScheduledJobData>(
    SYNC_QUEUE,
    work,
    {
      ...connection.options,
      concurrency: config.SYNC_CONCURRENCY,
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
    if (performance.now() - warned < WARN_INTERVAL) return;
    warned = performance.now();
    log.warn({ err: error }, 'the queue of syncs did not answer');
  });

  return {
    name: 'syncs',
    async stop() {
      // In this order: a worker that is not closing would take the job again that it gives back.
      const closed = worker.close();
      soon.abort();
      const patience = config.SHUTDOWN_TIMEOUT_MS * 0.6;
      const inTime = await Promise.race([closed.then(() => true), sleep(patience, false, { ref: false })]);
      if (inTime) return;
      now.abort();
      await Promise.race([closed, sleep(patience / 3, undefined, { ref: false })]);
    },
  };
}
