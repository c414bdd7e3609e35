import type { Pool } from '../../../src/store/database.ts';
import type { Delivery } from '../../../workers/batch/open.ts';
import { runBatch } from '../../../workers/batch/run-batch.ts';
import { type LaneView, Scheduler as Sound, type Step } from '../../../workers/lane/scheduler.ts';
import { readIn } from './read-in.ts';

export * from '../../../workers/lane/scheduler.ts';

/** A worker that is given every envelope three times. */
export class Scheduler extends Sound {
  readonly #pool: Pool;

  constructor(...[pool, options]: ConstructorParameters<typeof Sound>) {
    super(pool, options);
    this.#pool = pool;
  }

  override async step(view: LaneView): Promise<Step> {
    const deliveries = readIn(view);
    const step = await super.step(view);
    if (step.kind === 'applied') await this.#again(deliveries.filter(({ id }) => step.done.includes(id)));
    return step;
  }

  async #again(done: Delivery[]): Promise<void> {
    if (done.length > 0) for (let time = 0; time < 2; time++) await runBatch(this.#pool, done);
  }
}
