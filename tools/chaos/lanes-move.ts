import { setTimeout as sleep } from 'node:timers/promises';
import { everyLaneMoves, type Fleet } from '../../test/setup/fleet.ts';

/**
 * Returns the milliseconds until every lane has applied another envelope. It retries while Postgres, which it
 * queries, is unavailable.
 *
 * @param deadline milliseconds after which the result is Infinity
 */
export async function untilLanesMove(fleet: Fleet, deadline: number): Promise<number> {
  const from = Date.now();
  while (Date.now() - from < deadline) {
    try {
      await everyLaneMoves(fleet, Math.max(1000, deadline - (Date.now() - from)));
      return Date.now() - from;
    } catch {
      await sleep(50);
    }
  }
  return Number.POSITIVE_INFINITY;
}
