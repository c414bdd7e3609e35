import { newId } from '../../src/ids.ts';
import { lastDue, patternOf } from '../../src/integrations/schedule.ts';
import type { Service } from '../../src/lifecycle.ts';
import type { Log } from '../../src/log.ts';
import type { SyncQueue } from '../../src/queue/syncs.ts';
import type { Pool } from '../../src/store/database.ts';
import { listScheduled, type Scheduled } from '../../src/store/integrations/list-scheduled.ts';
import { findUnfinishedRuns } from '../../src/store/syncs/find-unfinished-runs.ts';
import { forgetEndedExpected } from '../../src/store/syncs/forget-ended-expected.ts';
import { forgetRowErrors } from '../../src/store/syncs/forget-row-errors.ts';
import { forgetRuns } from '../../src/store/syncs/forget-runs.ts';
import { startRun } from '../../src/store/syncs/start-run.ts';

const NUDGE_MS = 2000;
const FOLLOW_MS = 15_000;
const TIDY_MS = 3_600_000;

/**
 * What a sync process looks after beside its runs: that the queue knows of each run that has not ended, that the
 * schedulers are those of the integrations, also of a queue that came back empty, and old rows. Every process does it;
 * doing it twice is harmless.
 */
export function startSyncUpkeep(pool: Pool, syncs: SyncQueue, log: Log): Service {
  async function nudge(): Promise<void> {
    for (const id of await findUnfinishedRuns(pool)) await syncs.add(id);
  }

  async function follow(): Promise<void> {
    const scheduled = await listScheduled(pool);
    const wanted = scheduled.flatMap(({ id, schedule }) => {
      try {
        return [{ id, pattern: patternOf(schedule) }];
      } catch (error) {
        log.error({ err: error, integration_id: id }, 'an integration has a schedule that cannot be read');
        return [];
      }
    });
    const { changed, made } = await syncs.follow(wanted);
    for (const one of scheduled) if (made.includes(one.id)) await catchUp(one);
    if (changed > 0) log.info({ changed }, 'the schedules of integrations are those of their table again');
  }

  /** Of a queue that came back empty, no scheduler knows that a time has passed meanwhile. */
  async function catchUp({ id: integrationId, schedule, since }: Scheduled): Promise<void> {
    if (lastDue(schedule, new Date()) <= since) return;
    const id = newId();
    if ((await startRun(pool, { id, integrationId, askedBy: 'schedule' })) !== 'started') return;
    log.info({ job_id: id, integration_id: integrationId }, 'a scheduled run was missed, and is begun now');
    await syncs.add(id);
  }

  async function tidy(): Promise<void> {
    await forgetRowErrors(pool);
    await forgetRuns(pool);
    await forgetEndedExpected(pool);
  }

  const every = (milliseconds: number, work: () => Promise<void>) => {
    let busy = false;
    const run = async () => {
      if (busy) return;
      busy = true;
      await work().catch((error) => log.warn({ err: error }, 'upkeep of syncs failed; tried again later'));
      busy = false;
    };
    void run();
    const timer = setInterval(run, milliseconds);
    timer.unref();
    return timer;
  };
  const timers = [every(NUDGE_MS, nudge), every(FOLLOW_MS, follow), every(TIDY_MS, tidy)];
  return {
    name: 'sync upkeep',
    async stop() {
      for (const timer of timers) clearInterval(timer);
    },
  };
}
