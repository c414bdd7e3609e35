import { setTimeout as sleep } from 'node:timers/promises';
import { applyBatch } from '../../../test/workers/apply-batch.ts';
import type { Coalescer, createCoalescer as create } from '../../../workers/batch/coalescer.ts';
import type { Delivery } from '../../../workers/batch/open.ts';

/** Longer than the envelopes behind take. */
const RETRY_MS = 1500;

/** A worker that puts an envelope that it could not apply aside and goes on: the retry comes behind later ones. */
export function createCoalescer(...[pool, { log }]: Parameters<typeof create>): Coalescer {
  async function retry(delivery: Delivery): Promise<void> {
    for (;;) {
      await sleep(RETRY_MS);
      try {
        await applyBatch(pool, [delivery], log);
        return;
      } catch {
        // Later again.
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
