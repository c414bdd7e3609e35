import type { Delivery } from '../../../workers/batch/open.ts';
import {
  type LaneView,
  remaining,
  Scheduler as Sound,
  type Step,
  waiting,
} from '../../../workers/lane/scheduler.ts';
import { readIn } from './read-in.ts';

export * from '../../../workers/lane/scheduler.ts';

/**
 * Milliseconds of the delay, long enough that a killed worker has acknowledged envelopes which it has not
 * applied.
 */
const DELAY_MS = 200;

/** A faulty worker that acknowledges envelopes before their transaction is committed. */
export class Scheduler extends Sound {
  override async step(view: LaneView): Promise<Step> {
    const deliveries = readIn(view);
    setTimeout(() => void this.#applyAll(view.lane, deliveries), DELAY_MS);
    return { kind: 'applied', done: deliveries.map(({ id }) => id), left: new Map() };
  }

  async #applyAll(lane: number, deliveries: Delivery[]): Promise<void> {
    for (let left = deliveries.map((delivery) => waiting(delivery)); left.length > 0; ) {
      const envelopes = left;
      const step = await super.step({ lane, envelopes: () => envelopes });
      if (step.kind === 'abandoned') return;
      if (step.kind === 'applied') left = remaining(envelopes, step) as typeof left;
    }
  }
}
