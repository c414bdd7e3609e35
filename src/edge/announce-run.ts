import type { Log } from '../log.ts';
import type { SyncQueue } from '../queue/syncs.ts';

/**
 * Tells the sync processes of a run that has begun. Never rejects: the run stands in its table, where they find it by
 * themselves within seconds.
 */
export function createAnnouncer({ add }: Pick<SyncQueue, 'add'>, log: Log) {
  return function announceRun(runId: string): Promise<void> {
    return add(runId).catch((error) => {
      log.warn(
        { err: error, run_id: runId },
        'the queue did not take a sync run; it will be found in its table',
      );
    });
  };
}
