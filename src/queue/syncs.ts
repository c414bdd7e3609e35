import { type ScheduledJobData, SYNC_QUEUE, type SyncJobData, syncJobs } from '../jobs/catalog.ts';
import { within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { openQueue, type QueueAccess } from './bullmq-queues.ts';
import { QueueUnavailable } from './lanes.ts';

/** When an integration is to run. */
export interface SyncSchedule {
  /** Of the integration. */
  id: string;
  /** A cron expression of five fields, in UTC. */
  pattern: string;
}

/** Nothing is kept of a job that has ended: another may come under the same id, and the tables know more. */
const FORGOTTEN = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;

/**
 * The queue of sync runs and the schedulers of integrations, for those who fill it. Whatever is asked twice is done
 * once.
 *
 * @param timeout milliseconds, after which any of these gives up with QueueUnavailable
 */
export function createSyncQueue(connection: QueueAccess, timeout: number) {
  const queue = openQueue<SyncJobData | ScheduledJobData>(connection, SYNC_QUEUE);

  async function patient<T>(work: () => Promise<T>): Promise<T> {
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      return await within(timeout, work());
    } catch (error) {
      throw new QueueUnavailable('the queue of syncs did not answer', { cause: error });
    }
  }

  /** Every scheduler that there is. */
  const scheduled = (): Promise<SyncSchedule[]> =>
    patient(async () => {
      const schedulers = await queue.getJobSchedulers(0, -1, true);
      return schedulers.map(({ key, pattern }) => ({ id: key, pattern: pattern ?? '' }));
    });

  /**
   * Makes the integration's scheduler, or changes it. One that has the pattern already is left alone: made anew it
   * would forget a run that is due and was not taken yet.
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

    /** Says that a run waits; of one whose job is there nothing happens. */
    add: (runId: string): Promise<void> =>
      patient(async () => {
        await queue.add(syncJobs.sync, { job_id: runId }, { jobId: runId, ...FORGOTTEN });
      }),

    /**
     * Makes the schedulers those of `wanted`, and no others.
     * @returns how many were made, changed or taken away, and of which integrations there was none
     */
    async follow(wanted: readonly SyncSchedule[]): Promise<{ changed: number; made: string[] }> {
      const found = new Map((await scheduled()).map(({ id, pattern }) => [id, pattern]));
      const made = wanted.filter(({ id }) => !found.has(id)).map(({ id }) => id);
      const changed = wanted.filter(({ id, pattern }) => found.get(id) !== pattern);
      for (const one of changed) await schedule(one);
      for (const { id } of wanted) found.delete(id);
      for (const id of found.keys()) await unschedule(id);
      return { changed: changed.length + found.size, made };
    },

    stop: () => queue.close(),
  };
}

export type SyncQueue = ReturnType<typeof createSyncQueue>;

/**
 * Tells the sync processes of a run that has begun. Never rejects: the run stands in its table, where they find it by
 * themselves within seconds.
 */
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
