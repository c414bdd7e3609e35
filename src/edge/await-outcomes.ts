import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../log.ts';
import type { Pool } from '../store/database.ts';
import { type Outcome, readOutcomes } from '../store/outcomes/read-outcomes.ts';
import { within } from '../within.ts';

/** Milliseconds that a request waits for the workers: clients give up after 2 s. */
const DEADLINE = 1500;

/** Milliseconds before the first look, which is about what a worker at rest takes; each further one waits longer. */
const FIRST_PAUSE = 5;
/** Milliseconds between two looks at most. */
const LONGEST_PAUSE = 50;

/** What the log says of a request whose answer could wait no longer. */
export const UNDECIDED = 'the workers have not come to it yet';

/** How all objects have ended, or why that is not known. */
export type Settled = { errors: ReadonlyMap<string, string> } | { unknown: string };

/**
 * Waits until the workers have written down how each of the objects ended. Never throws: the objects are on
 * disk, so a store that cannot be asked only means that the end is not known yet.
 *
 * @returns by the id of each object that did not take effect, why; `unknown` when it took too long
 */
export async function awaitOutcomes(pool: Pool, objectIds: string[]): Promise<Settled> {
  const end = performance.now() + DEADLINE;
  let unknown = UNDECIDED;
  for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    const left = end - performance.now();
    if (left <= pause) return { unknown };
    await sleep(pause);
    try {
      const outcomes = await within(left - pause, readOutcomes(pool, objectIds));
      if (outcomes.length === objectIds.length) return { errors: errorsOf(outcomes) };
      unknown = UNDECIDED;
    } catch (error) {
      unknown = messageOf(error);
    }
  }
}

function errorsOf(outcomes: Outcome[]): Map<string, string> {
  return new Map(outcomes.flatMap(({ object_id, error }) => (error === null ? [] : [[object_id, error]])));
}
