import type { Delivery } from '../../../workers/batch/open.ts';
import type { LaneView } from '../../../workers/lane/scheduler.ts';

/** The envelopes at the head of a lane whose data have been read. */
export function readIn({ envelopes }: LaneView): Delivery[] {
  const deliveries: Delivery[] = [];
  for (const { delivery } of envelopes()) {
    if (!delivery) break;
    deliveries.push(delivery);
  }
  return deliveries;
}
