import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from '../../../src/store/database.ts';
import { applyBatch } from '../../../test/workers/apply-batch.ts';
import type { Delivery } from '../../../workers/batch/open.ts';
import { type LaneView, Scheduler as Sound, type Step } from '../../../workers/lane/scheduler.ts';
import { readIn } from './read-in.ts';

export * from '../../../workers/lane/scheduler.ts';

/** Milliseconds of the delay, which is longer than later envelopes take. */
const RETRY_MS = 1500;

/** A faulty worker that continues after a failed envelope and retries it after later envelopes. */
export class Scheduler extends Sound {
  readonly #pool: Pool;

  constructor(...[pool, options]: ConstructorParameters<typeof Sound>) {
    super(pool, options);
    this.#pool = pool;
  }

  override async step(view: LaneView): Promise<Step> {
    const deliveries = readIn(view);
    for (const delivery of deliveries)
      await applyBatch(this.#pool, [delivery]).catch(() => void this.#retry(delivery));
    return { kind: 'applied', done: deliveries.map(({ id }) => id), left: new Map() };
  }

  async #retry(delivery: Delivery): Promise<void> {
    for (;;) {
      await sleep(RETRY_MS);
      try {
        await applyBatch(this.#pool, [delivery]);
        return;
      } catch {
        // Retry later.
      }
    }
  }
}
