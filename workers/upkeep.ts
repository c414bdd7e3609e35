import type { Config } from '../src/config.ts';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';
import type { QueueConnection } from '../src/queue/connection.ts';
import { laneName } from '../src/queue/lanes.ts';
import { watchForLoss } from '../src/queue/loss.ts';
import { openQueue } from '../src/queue/open-queue.ts';
import { ensurePartitions } from '../src/store/activity/ensure-partitions.ts';
import type { Pool } from '../src/store/database.ts';
import { forgetEnvelopes } from '../src/store/delivery/forget-envelopes.ts';
import { forgetArrivals } from '../src/store/fences/forget-arrivals.ts';
import { forgetOutcomes } from '../src/store/outcomes/forget-outcomes.ts';
import { blockDummyUsers } from './dummy-users.ts';

const CHECK_LANES_MS = 5000;
const BLOCK_DUMMIES_MS = 60_000;
const TIDY_STORE_MS = 3_600_000;

/**
 * What a worker looks after beside its lanes: that each lane still lets one job through at a time (the limit
 * lives in the queue, and `obliterate` there would take it away without a word), that the queue has not been
 * emptied, dummy users, next month's partitions, and old rows of the ledger, of fences and of outcomes. Every worker
 * does it; doing it twice is harmless.
 *
 * @param onLoss called when the queue has lost what it held
 */
export async function startUpkeep(
  connection: QueueConnection,
  pool: Pool,
  config: Config,
  log: Log,
  onLoss: () => void = () => {},
): Promise<Service> {
  const lanes = Array.from({ length: config.LANES }, (_, lane) => openQueue(connection, laneName(lane)));
  await Promise.all(lanes.map((queue) => queue.setGlobalConcurrency(1)));
  const loss = watchForLoss(connection, log, onLoss);
  await loss.look();

  async function checkLanes(): Promise<void> {
    await loss.look();
    for (const queue of lanes) {
      if ((await queue.getGlobalConcurrency()) === 1) continue;
      log.error({ lane: queue.name }, 'a lane had lost its limit of one job at a time; it is set again');
      await queue.setGlobalConcurrency(1);
    }
  }

  async function tidyStore(): Promise<void> {
    await ensurePartitions(pool);
    await forgetEnvelopes(pool, config.LEDGER_DAYS);
    await forgetOutcomes(pool);
    await forgetArrivals(pool);
  }

  const every = (milliseconds: number, work: () => Promise<void>) => {
    const timer = setInterval(
      () => work().catch((error) => log.warn({ err: error }, 'upkeep failed; tried again later')),
      milliseconds,
    );
    timer.unref();
    return timer;
  };
  const timers = [
    every(CHECK_LANES_MS, checkLanes),
    every(BLOCK_DUMMIES_MS, () => blockDummyUsers(pool, log)),
    every(TIDY_STORE_MS, tidyStore),
  ];
  await tidyStore();
  return {
    name: 'upkeep',
    async stop() {
      for (const timer of timers) clearInterval(timer);
      await Promise.all(lanes.map((queue) => queue.close()));
    },
  };
}
