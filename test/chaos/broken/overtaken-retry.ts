import { setTimeout as sleep } from 'node:timers/promises';
import type { Coalescer, createCoalescer as create } from '../../../workers/coalescer.ts';
import { runBatch } from '../../../workers/run.ts';

/** Longer than the envelopes behind take. */
const RETRY_MS = 1500;

/** A worker that puts what it could not apply aside and goes on: the retry comes behind later envelopes. */
export function createCoalescer(...[pool, , , , log]: Parameters<typeof create>): Coalescer {
  async function retry(deliveries: Parameters<Coalescer['apply']>): Promise<void> {
    for (;;) {
      await sleep(RETRY_MS);
      try {
        await runBatch(pool, deliveries, log);
        return;
      } catch {
        // Later again.
      }
    }
  }
  return {
    async apply(...deliveries) {
      await runBatch(pool, deliveries, log).catch(() => void retry(deliveries));
    },
    abandon() {},
  };
}
