import { setTimeout as sleep } from 'node:timers/promises';
import type { Coalescer, createCoalescer as create } from '../../../workers/coalescer.ts';
import { runBatch } from '../../../workers/run.ts';

/** Longer than the envelopes behind take. */
const RETRY_MS = 1500;

/** A worker that puts what it could not apply aside and goes on: the retry comes behind later envelopes. */
export function createCoalescer(...[pool, , , , log]: Parameters<typeof create>): Coalescer {
  async function retry(delivery: Parameters<Coalescer['apply']>[0]): Promise<void> {
    for (;;) {
      await sleep(RETRY_MS);
      try {
        await runBatch(pool, [delivery], log);
        return;
      } catch {
        // Later again.
      }
    }
  }
  return {
    async apply(delivery) {
      await runBatch(pool, [delivery], log).catch(() => void retry(delivery));
    },
    abandon() {},
  };
}
