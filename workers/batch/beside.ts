import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import type { BatchResult } from './failures.ts';
import type { Delivery } from './open.ts';
import { PART_MS, WHOLE } from './parts.ts';
import { applyTogether } from './run.ts';

interface BesideOptions {
  pool: Pool;
  log: Log;
  signal: AbortSignal;
  report(deliveries: Delivery[], result: BatchResult, milliseconds: number): void;
  /** Whether there is a connection, and nothing is known against these envelopes. */
  mayBegin(ids: string[]): boolean;
}

/**
 * Applies envelopes in a transaction beside those of the coalescer, before their place in the lane: they are of other
 * workspaces than all that stands in front of them. One such transaction at a time, tried once: what does not take effect
 * by it still waits in its lane.
 *
 * @returns a function that says whether all of them have taken effect; undefined: they were not tried, and may be later
 */
export function createBeside({ pool, log, signal, report, mayBegin }: BesideOptions) {
  let isBusy = false;

  return async function applyBeside(deliveries: Delivery[]): Promise<boolean | undefined> {
    const ids = deliveries.map(({ id }) => id);
    if (isBusy || signal.aborted || !mayBegin(ids)) return undefined;
    isBusy = true;
    const started = performance.now();
    try {
      const result = await applyTogether(pool, deliveries, { ...WHOLE, milliseconds: PART_MS });
      report(deliveries, result, performance.now() - started);
      return result.kind === 'skipped' || result.left === undefined;
    } catch (error) {
      log.warn({ err: error, envelopes: ids }, 'not applied before its place in the lane');
      return false;
    } finally {
      isBusy = false;
    }
  };
}
