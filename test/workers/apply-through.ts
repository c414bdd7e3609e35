import { rest } from '../../src/platform/poll.ts';
import { tagOf } from '../../src/queue/lanes.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { remaining, type Scheduler, type WaitingDelivery, waiting } from '../../workers/lane/scheduler.ts';

/** Completion of the latest call, by lane of a scheduler. */
const latest = new WeakMap<Scheduler, Map<number, Promise<void>>>();

/**
 * Applies envelopes as a lane worker does, in the given order per lane, after the envelopes of earlier calls for the same
 * lanes. Resolves when all of them have taken effect; stays pending after `abandon`.
 */
export async function applyThrough(scheduler: Scheduler, ...deliveries: Delivery[]): Promise<void> {
  const calls = latest.get(scheduler) ?? new Map<number, Promise<void>>();
  latest.set(scheduler, calls);
  const lanes = new Map<number, Delivery[]>();
  for (const delivery of deliveries)
    lanes.set(delivery.lane, [...(lanes.get(delivery.lane) ?? []), delivery]);
  const applied = [...lanes].map(([lane, own]) => {
    const before = calls.get(lane) ?? Promise.resolve();
    const call = before.then(() => applyAll(scheduler, lane, own));
    calls.set(lane, call);
    return call;
  });
  await Promise.all(applied);
}

async function applyAll(scheduler: Scheduler, lane: number, deliveries: Delivery[]): Promise<void> {
  let envelopes: WaitingDelivery[] = deliveries.map((delivery) => waiting(delivery));
  for (const { parts } of envelopes) for (const id of parts!.keys()) scheduler.accounts.see(tagOf(id));
  while (envelopes.length > 0) {
    const step = await scheduler.step({ lane, envelopes: () => envelopes });
    if (step.kind === 'abandoned') return new Promise(() => {});
    if (step.kind === 'waits') await rest(step.milliseconds);
    else envelopes = remaining(envelopes, step);
  }
}
