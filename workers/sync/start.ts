import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'bullmq';
import { lastDue, patternOf } from '../../src/integrations/schedule.ts';
import { type ScheduledJobData, SYNC_QUEUE, type SyncJobData, syncJobs } from '../../src/jobs/catalog.ts';
import { isClockSet, nowDate } from '../../src/platform/clock.ts';
import type { Config } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll, rest } from '../../src/platform/poll.ts';
import { WaitingError, Worker } from '../../src/queue/bullmq.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { drainDelayOf, NOT_RUNNING, runWorker } from '../../src/queue/open-worker.ts';
import type { SyncQueue } from '../../src/queue/syncs.ts';
import type { Pool } from '../../src/store/database.ts';
import { listScheduled, type Scheduled } from '../../src/store/integrations.ts';
import { forgetAttempts } from '../../src/store/job-attempts.ts';
import { forgetEndedExpected } from '../../src/store/sync-boundary.ts';
import { forgetRowErrors } from '../../src/store/sync-chunks.ts';
import { findUnfinishedRuns, forgetRuns, startRun } from '../../src/store/sync-runs.ts';
import type { SyncMetrics } from './metrics.ts';
import type { RunWorker } from './work-run.ts';

const RETRY_MS = 1000;

/** Starts the scheduled runs of integrations. */
export class ScheduledRuns {
  readonly #pool: Pool;
  readonly #syncs: Pick<SyncQueue, 'add'>;
  readonly #skipped: SyncMetrics['skipped'];
  readonly #log: Log;

  constructor(parts: {
    pool: Pool;
    syncs: Pick<SyncQueue, 'add'>;
    /** Counts runs that were not started. */
    skipped: SyncMetrics['skipped'];
    log: Log;
  }) {
    this.#pool = parts.pool;
    this.#syncs = parts.syncs;
    this.#skipped = parts.skipped;
    this.#log = parts.log;
  }

  /**
   * Starts a run of an integration, unless its last run has not ended.
   * @returns false if Postgres did not respond until the process was asked to stop
   */
  async start(integrationId: string, leaving: AbortSignal): Promise<boolean> {
    const id = newId();
    while (!leaving.aborted) {
      try {
        const started = await startRun(this.#pool, { id, integrationId, askedBy: 'schedule' });
        if (started !== 'started') {
          this.#skipped.inc({ reason: started });
          this.#log.info(
            { integration_id: integrationId, reason: started },
            'a scheduled run was not started',
          );
          return true;
        }
        // If the queue does not accept the job, the next sweep adds it.
        await this.#syncs
          .add(id)
          .catch((error) =>
            this.#log.warn(
              { err: error, job_id: id },
              'run could not be added to the queue; the next sweep adds it',
            ),
          );
        return true;
      } catch (error) {
        this.#log.warn(
          { err: error, integration_id: integrationId },
          'scheduled run could not be started; will retry',
        );
        await rest(RETRY_MS, leaving);
      }
    }
    return false;
  }
}

/** BullMQ fails a job permanently that stalls more often, but a run must never be given up. */
const MAX_STALLED = 1_000_000;

/**
 * Seconds that an idle process waits for its next job, and milliseconds before it asks again after an error.
 */
const DRAIN_DELAY = 1;
const RUN_RETRY_DELAY = 500;

/** Milliseconds between two log lines about a queue that does not respond. */
const WARN_INTERVAL = 5000;

interface SyncsOptions {
  connection: QueueConnection;
  runs: Pick<RunWorker, 'process'>;
  scheduled: ScheduledRuns;
  /** Shows the number of runs in progress. */
  working: SyncMetrics['working'];
  log: Log;
  config: Pick<
    Config,
    'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS' | 'SHUTDOWN_TIMEOUT_MS' | 'SYNC_CONCURRENCY'
  >;
}

/**
 * Processes the queue of sync runs, several at a time. The state of a run is in the tables; a job only
 * announces it. When the process is asked to stop, each run finishes its chunk and returns to the head of the
 * queue.
 */
export function startSyncs({ connection, runs, scheduled, working, log, config }: SyncsOptions): Service {
  const [soon, now] = [new AbortController(), new AbortController()];
  const leaving = { soon: soon.signal, now: now.signal };

  async function work(job: Job<SyncJobData | ScheduledJobData>, token?: string): Promise<void> {
    working.inc();
    try {
      if (await workJob(job)) return;
    } finally {
      working.dec();
    }
    // If the queue refuses, the job belongs to another process already, or will be found when its lock has
    // expired.
    await job.moveToWait(token).catch(() => {});
    throw new WaitingError();
  }

  /** @returns false if the run was interrupted */
  async function workJob({ name, data }: Job<SyncJobData | ScheduledJobData>): Promise<boolean> {
    if (name === syncJobs.scheduled)
      return scheduled.start((data as ScheduledJobData).integration_id, leaving.soon);
    return runs.process((data as SyncJobData).job_id, leaving);
  }

  let warned = Number.NEGATIVE_INFINITY;

  function openWorker() {
    const opened = new Worker<SyncJobData | ScheduledJobData>(
      SYNC_QUEUE,
      work,
      {
        ...connection.options,
        ...NOT_RUNNING,
        concurrency: config.SYNC_CONCURRENCY,
        lockDuration: config.LOCK_DURATION_MS,
        stalledInterval: config.STALLED_INTERVAL_MS,
        maxStalledCount: MAX_STALLED,
        drainDelay: drainDelayOf(connection, {
          atLeast: DRAIN_DELAY,
          stalledInterval: config.STALLED_INTERVAL_MS,
        }),
        runRetryDelay: RUN_RETRY_DELAY,
      },
      connection.factory,
    );
    opened.on('error', (error) => {
      if (performance.now() - warned < WARN_INTERVAL) return;
      warned = performance.now();
      log.warn({ err: error }, 'queue of syncs did not answer');
    });
    return opened;
  }

  const worker = runWorker(openWorker);

  return {
    name: 'syncs',
    async stop() {
      // Close first: a worker that is not closing would take the job that it gives back.
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

const NUDGE_MS = 2000;
const FOLLOW_MS = 15_000;
const TIDY_MS = 3_600_000;

/**
 * Starts the maintenance of syncs: adds jobs for all runs that have not ended to the queue, updates the
 * schedulers from the integrations (also after the queue was lost), and deletes old rows. Every process does
 * it, and doing it twice is harmless.
 */
export function startSyncUpkeep(pool: Pool, syncs: SyncQueue, log: Log): Service {
  async function nudge(): Promise<void> {
    for (const id of await findUnfinishedRuns(pool)) await syncs.add(id);
  }

  async function follow(): Promise<void> {
    const scheduled = await listScheduled(pool);
    // The schedulers of BullMQ follow the clock of the machine, not a clock that was set.
    if (isClockSet()) {
      await syncs.follow([]);
      for (const one of scheduled) await catchUp(one);
      return;
    }
    const wanted = scheduled.flatMap(({ id, schedule }) => {
      try {
        return [{ id, pattern: patternOf(schedule) }];
      } catch (error) {
        log.error({ err: error, integration_id: id }, 'schedule of an integration is invalid');
        return [];
      }
    });
    const { changed, made } = await syncs.follow(wanted);
    for (const one of scheduled) if (made.includes(one.id)) await catchUp(one);
    if (changed > 0) log.info({ changed }, 'integration schedules resynchronized from the database');
  }

  /**
   * Starts a run that was missed. The schedulers of a queue that was lost do not know that a time has passed
   * meanwhile.
   */
  async function catchUp({ id: integrationId, schedule, since }: Scheduled): Promise<void> {
    if (lastDue(schedule, nowDate()) <= since) return;
    const id = newId();
    if ((await startRun(pool, { id, integrationId, askedBy: 'schedule' })) !== 'started') return;
    log.info({ job_id: id, integration_id: integrationId }, 'scheduled run was missed; started it now');
    await syncs.add(id);
  }

  async function tidy(): Promise<void> {
    await forgetRowErrors(pool);
    await forgetRuns(pool);
    await forgetEndedExpected(pool);
    await forgetAttempts(pool);
  }

  const warn = (error: unknown) => log.warn({ err: error }, 'upkeep of syncs failed; will retry');
  const pollers = [poll(NUDGE_MS, nudge, warn), poll(FOLLOW_MS, follow, warn), poll(TIDY_MS, tidy, warn)];
  for (const { now } of pollers) void now();
  return {
    name: 'sync upkeep',
    async stop() {
      for (const poller of pollers) void poller.stop();
    },
  };
}
