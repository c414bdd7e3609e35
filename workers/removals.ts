import { setTimeout as sleep } from 'node:timers/promises';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';
import type { Pool } from '../src/store/database.ts';
import { isPassed, readHorizon } from '../src/store/removals/horizon.ts';
import { selectRemoved } from '../src/store/removals/select-removed.ts';
import { settleRemoved } from './settle-removed.ts';

export interface Removals extends Service {
  /** Says that profiles were merged or deleted. */
  wake(): void;
}

/** Between two looks for what a worker that died has left. */
const SWEEP_INTERVAL_MS = 5000;

/** Profiles taken at a time. */
const CHUNK = 200;

const LONGEST_PAUSE_MS = 100;

/**
 * Does what is left to do for profiles that are gone, beside the lanes.
 *
 * With several lanes, one that has found a profile may write its events and their sums after another lane has
 * merged or deleted it: events lock no profile, since a lock costs as much as the event. So a removed profile
 * is looked at once more when every transaction that was under way at its removal has ended: whoever looked it up
 * before has written by then, and nobody can look it up since.
 */
export function startRemovals(pool: Pool, log: Log): Removals {
  const stopping = new AbortController();
  let awake = true;
  let wakeUp = () => {};
  const running = run();

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      awake = false;
      try {
        while (!stopping.signal.aborted && (await settleSome())) {}
      } catch (error) {
        log.warn({ err: error }, 'removed profiles could not be settled yet');
      }
      if (!awake) await rest();
    }
  }

  /** @returns false when nothing is left that this worker can do */
  async function settleSome(): Promise<boolean> {
    const keys = await selectRemoved(pool, CHUNK);
    if (keys.length === 0) return false;
    await horizonPassed();
    if (stopping.signal.aborted) return false;
    const started = performance.now();
    const settled = await settleRemoved(pool, keys);
    // Half of the time belongs to the lanes: a user with a million events is erased in slices.
    await pause(performance.now() - started);
    return settled;
  }

  async function horizonPassed(): Promise<void> {
    const horizon = await readHorizon(pool);
    for (let wait = 1; !stopping.signal.aborted; wait = Math.min(wait * 2, LONGEST_PAUSE_MS)) {
      if (await isPassed(pool, horizon)) return;
      await pause(wait);
    }
  }

  async function pause(milliseconds: number): Promise<void> {
    await sleep(milliseconds, undefined, { signal: stopping.signal }).catch(() => {});
  }

  async function rest(): Promise<void> {
    const woken = new Promise<void>((resolve) => {
      wakeUp = resolve;
    });
    await Promise.race([woken, pause(SWEEP_INTERVAL_MS)]);
  }

  return {
    name: 'removals',
    wake() {
      awake = true;
      wakeUp();
    },
    async stop() {
      stopping.abort();
      wakeUp();
      await running;
    },
  };
}
