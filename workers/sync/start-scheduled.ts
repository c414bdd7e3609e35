import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '../../src/ids.ts';
import type { SyncQueue } from '../../src/queue/syncs.ts';
import { startRun } from '../../src/store/syncs/start-run.ts';
import type { SyncContext } from './context.ts';

const RETRY_MS = 1000;

/**
 * It is time for a run of an integration: begins one, unless the last has not ended.
 * @returns false: Postgres did not answer until this process was told to stop
 */
export async function startScheduled(
  integrationId: string,
  { pool, metrics, log }: SyncContext,
  syncs: Pick<SyncQueue, 'add'>,
  leaving: AbortSignal,
): Promise<boolean> {
  const id = newId();
  while (!leaving.aborted) {
    try {
      const outcome = await startRun(pool, { id, integrationId, askedBy: 'schedule' });
      if (outcome !== 'started') {
        metrics.skipped.inc({ reason: outcome });
        log.info({ integration_id: integrationId, reason: outcome }, 'a scheduled run was not started');
        return true;
      }
      // Where the queue does not take it, the next sweep finds it.
      await syncs.add(id).catch((error) => log.warn({ err: error, job_id: id }, 'a run waits for the queue'));
      return true;
    } catch (error) {
      log.warn({ err: error, integration_id: integrationId }, 'a scheduled run could not be started yet');
      await sleep(RETRY_MS, undefined, { signal: leaving }).catch(() => {});
    }
  }
  return false;
}
