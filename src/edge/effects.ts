import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from '../store/database.ts';
import { readApplied } from '../store/delivery/read-applied.ts';

/** Milliseconds before the first look, which is about what a worker at rest takes; each further one waits longer. */
const FIRST_PAUSE = 3;
/** Milliseconds between two looks at most, while nobody new waits. */
const LONGEST_PAUSE = 25;

interface Waiting {
  missing: Set<string>;
  settle(applied: boolean): void;
}

/**
 * Waits for envelopes to take effect. However many requests wait, the store is asked one question at a time.
 */
export function createEffects(pool: Pool) {
  const waiting = new Set<Waiting>();
  let isNew = false;
  let looking = false;

  /**
   * Never throws: the objects are on disk, so a store that cannot be asked only means that it is not known yet.
   *
   * @param ids of the envelopes
   * @param patience milliseconds
   * @returns whether all of them have taken effect in time
   */
  function awaited(ids: string[], patience: number): Promise<boolean> {
    if (ids.length === 0) return Promise.resolve(true);
    return new Promise((resolve) => {
      const timer = setTimeout(() => one.settle(false), patience);
      const one: Waiting = {
        missing: new Set(ids),
        settle(applied) {
          clearTimeout(timer);
          waiting.delete(one);
          resolve(applied);
        },
      };
      waiting.add(one);
      isNew = true;
      if (!looking) void lookUntilSettled();
    });
  }

  async function lookUntilSettled(): Promise<void> {
    looking = true;
    for (
      let pause = FIRST_PAUSE;
      waiting.size > 0;
      pause = isNew ? FIRST_PAUSE : Math.min(2 * pause, LONGEST_PAUSE)
    ) {
      isNew = false;
      await sleep(pause);
      const asked = [...waiting];
      const applied = await readApplied(pool, [
        ...new Set(asked.flatMap(({ missing }) => [...missing])),
      ]).catch(() => new Set<string>());
      for (const one of asked) {
        for (const id of one.missing) if (applied.has(id)) one.missing.delete(id);
        if (one.missing.size === 0) one.settle(true);
      }
    }
    looking = false;
  }

  return { awaited };
}

export type Effects = ReturnType<typeof createEffects>;
