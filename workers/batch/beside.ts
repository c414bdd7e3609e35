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
  hasConnection(): boolean;
  /** Whether something is known against an envelope. */
  isSuspect(id: string): boolean;
}

/**
 * Applies envelopes in a transaction beside those of the coalescer, before their place in the lane: they are of other
 * workspaces than all that stands in front of them. One such transaction at a time, tried once: what does not take effect
 * by it still waits in its lane.
 */
export function createBeside({ pool, log, signal, report, hasConnection, isSuspect }: BesideOptions) {
  let isBusy = false;

  const isFree = () => !isBusy && !signal.aborted && hasConnection();

  /** @returns whether all of them have taken effect; undefined: they were not tried, and may be later */
  async function apply(deliveries: Delivery[]): Promise<boolean | undefined> {
    const ids = deliveries.map(({ id }) => id);
    if (!isFree() || ids.some(isSuspect)) return undefined;
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
  }

  return {
    apply,
    /** Whether one may be begun. To be asked before what could be applied is read: that is up to some megabytes. */
    isFree,
  };
}
