import { createDatabase } from '../setup/fixtures.ts';
import { type Backend, type Fleet, type FleetOptions, startFleetOn } from '../setup/fleet.ts';

export {
  type Backend,
  backends,
  busyWorker,
  countProcessed,
  everyLaneMoves,
  type Fleet,
  type Member,
  OBSERVER,
  statusOf,
} from '../setup/fleet.ts';

/** Two edges and three workers on a database of their own, redelivering soon after a death. */
export async function startFleet(backend: Backend, options: FleetOptions = {}): Promise<Fleet> {
  const { url } = await createDatabase();
  return startFleetOn(url, backend, options);
}
