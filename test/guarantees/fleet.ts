import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../setup/fixtures.ts';
import { type Backend, countProcessed, type Fleet, type FleetOptions, startFleetOn } from '../setup/fleet.ts';

export {
  type Backend,
  backends,
  busyWorker,
  countProcessed,
  eitherBackend,
  everyLaneMoves,
  type Fleet,
  type Member,
  OBSERVER,
  statusOf,
} from '../setup/fleet.ts';

/** Starts two web processes and two workers on a new database, with a short redelivery after a death. */
export async function startFleet(backend: Backend, options: FleetOptions = {}): Promise<Fleet> {
  const { url } = await createDatabase();
  return startFleetOn(url, backend, options);
}

/** Follows `countProcessed` until `leave` is called, also while Postgres is away. */
export function watchWorkers(fleet: Fleet) {
  let processed = 0;
  let left = false;
  const watch = async () => {
    while (!left) {
      processed = await countProcessed(fleet).catch(() => processed);
      await sleep(50);
    }
  };
  return {
    processed: () => processed,
    /** Resolves after `leave`. */
    watching: watch(),
    leave() {
      left = true;
    },
  };
}
