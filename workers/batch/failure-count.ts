import { within } from '../../src/platform/lifecycle.ts';
import { inTransaction, type Pool } from '../../src/store/database.ts';
import { signatureOf, triesOf } from './failures.ts';

/** Milliseconds in which a store that is well commits the smallest transaction there is. */
const WELL_MS = 1000;

/** How often something has failed in the same way, one time after the other. */
export interface Failed {
  times: number;
  signature: string | undefined;
}

/**
 * Counts how something fails: an error counts when it is the one before again, and the store is well beside it.
 *
 * @param before what has been counted by then
 */
export function createFailures(pool: Pool, before: Failed = { times: 0, signature: undefined }) {
  let { times, signature } = before;

  return {
    /** @returns times in a row; 0: it is nobody's fault */
    async count(error: unknown): Promise<number> {
      if (signatureOf(error) !== signature) times = 0;
      signature = signatureOf(error);
      if (triesOf(error) === Number.POSITIVE_INFINITY || !(await isWell(pool))) return 0;
      times++;
      return times;
    },

    /** The objects in hand are others now, and have failed so many times the same way. */
    goOnFrom(sofar: number): void {
      times = sofar;
    },

    sofar: (): Failed => ({ times, signature }),
  };
}

/** Whether the store commits what is smallest; a number of a transaction makes it write. */
export async function isWell(pool: Pool): Promise<boolean> {
  const commit = inTransaction(pool, (tx) => tx.query('select pg_current_xact_id()'));
  return within(WELL_MS, commit).then(
    () => true,
    () => false,
  );
}
