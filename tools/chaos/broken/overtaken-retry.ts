import { setTimeout as sleep } from 'node:timers/promises';
import { applyBatch } from '../../../test/workers/apply-batch.ts';
import type { Coalescer, createCoalescer as create } from '../../../workers/batch/coalescer.ts';
import type { Delivery } from '../../../workers/batch/open.ts';

/** Milliseconds of the delay, which is longer than later envelopes take. */
const RETRY_MS = 1500;

/**
 * Breaks a worker: it sets an envelope that it could not apply aside and continues, so that the retry follows
 * later envelopes.
 */
export function createCoalescer(...[pool, { log }]: Parameters<typeof create>): Coalescer {
  async function retry(delivery: Delivery): Promise<void> {
    for (;;) {
      await sleep(RETRY_MS);
      try {
        await applyBatch(pool, [delivery], log);
        return;
      } catch {
        // Retry later.
      }
    }
  }
  return {
    async apply(...deliveries) {
      for (const delivery of deliveries) {
        await applyBatch(pool, [delivery], log).catch(() => void retry(delivery));
      }
    },
    beside: { apply: async () => false, isFree: () => true },
    follow() {},
    abandon() {},
  };
}
