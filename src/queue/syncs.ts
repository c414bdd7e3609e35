import { type ScheduledJobData, SYNC_QUEUE, type SyncJobData, syncJobs } from '../jobs/catalog.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { openQueue, type QueueAccess } from './bullmq-queues.ts';
import { QueueUnavailable } from './lanes.ts';

/** The schedule of an integration. */
interface SyncSchedule {
  /** Id of the integration. */
  id: string;
  /** A cron expression of five fields, in UTC. */
  pattern: string;
}

/** Finished jobs are removed: another job may use the same id, and the tables have the details. */
const FORGOTTEN = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;

/**
 * Opens the queue of sync runs and the schedulers of integrations for producers. Every operation is idempotent.
 *
 * @param timeout milliseconds after which an operation fails with QueueUnavailable
 */
export function createSyncQueue(connection: QueueAccess, timeout: number) {
  const queue = openQueue<SyncJobData | ScheduledJobData>(connection, SYNC_QUEUE);

  async function patient<T>(work: () => Promise<T>): Promise<T> {
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      return await withTimeout(timeout, work());
    } catch (error) {
      throw new QueueUnavailable('the queue of syncs did not answer', { cause: error });
    }
  }

  /** Lists all schedulers. */
  const scheduled = (): Promise<SyncSchedule[]> =>
    patient(async () => {
      const schedulers = await queue.getJobSchedulers(0, -1, true);
      return schedulers.map(({ key, pattern }) => ({ id: key, pattern: pattern ?? '' }));
    });

  /**
   * Creates or updates the integration's scheduler. A scheduler that has the pattern already is not replaced, because
   * that would drop a run that is due but not taken yet.
   */
  const schedule = ({ id, pattern }: SyncSchedule): Promise<void> =>
    patient(async () => {
      if ((await queue.getJobScheduler(id))?.pattern === pattern) return;
      const data: ScheduledJobData = { integration_id: id };
      await queue.upsertJobScheduler(
        id,
        { pattern, tz: 'UTC' },
        { name: syncJobs.scheduled, data, opts: FORGOTTEN },
      );
    });

  const unschedule = (id: string): Promise<void> =>
    patient(async () => void (await queue.removeJobScheduler(id)));

  return {
    scheduled,
    schedule,
    unschedule,

    /** Enqueues a run. Does nothing if its job exists already. */
    add: (runId: string): Promise<void> =>
      patient(async () => {
        await queue.add(syncJobs.sync, { job_id: runId }, { jobId: runId, ...FORGOTTEN });
      }),

    /**
     * Creates, updates and removes schedulers so that they match `wanted`.
     * @returns the number of changes, and the ids of integrations that had no scheduler
     */
    async follow(wanted: readonly SyncSchedule[]): Promise<{ changed: number; made: string[] }> {
      const patternById = new Map((await scheduled()).map(({ id, pattern }) => [id, pattern]));
      const made = wanted.filter(({ id }) => !patternById.has(id)).map(({ id }) => id);
      const changed = wanted.filter(({ id, pattern }) => patternById.get(id) !== pattern);
      for (const one of changed) await schedule(one);
      for (const { id } of wanted) patternById.delete(id);
      for (const id of patternById.keys()) await unschedule(id);
      return { changed: changed.length + patternById.size, made };
    },

    stop: () => queue.close(),
  };
}

export type SyncQueue = ReturnType<typeof createSyncQueue>;

/** Notifies the sync processes of a new run. Never rejects: they find the run in its table within seconds anyway. */
export function createAnnouncer({ add }: Pick<SyncQueue, 'add'>, log: Log) {
  return function announceRun(runId: string): Promise<void> {
    return add(runId).catch((error) => {
      log.warn(
        { err: error, run_id: runId },
        'sync run was not added to the queue; upkeep will add it from its table',
      );
    });
  };
}
