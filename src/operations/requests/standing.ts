import type { AcceptedObject } from '../../jobs/envelope.ts';
import { inputArrayOf } from '../../jobs/input-array.ts';
import type { Trace } from '../../jobs/traces.ts';
import type { DeadLetter } from '../../store/dead-letters/dead-letter.ts';

export type Status = 'accepted' | 'applied' | 'failed';

/** What has become of what stood at one place of a request. */
export interface Standing {
  input_array: string;
  index: number;
  status: Status;
  reason?: string;
}

/** What each status of a dead letter means to who sent the object. */
const tried: Record<DeadLetter['state'], Status> = {
  waiting: 'failed',
  replaying: 'accepted',
  replayed: 'applied',
};

/**
 * The places of a request with what has become of them, in its order. Where several objects stood at one place (users
 * of one element of `subscription_groups`), the place stands as the worst of them does.
 */
export function standings(parts: { trace: Trace; status: Status }[], deadLetters: DeadLetter[]): Standing[] {
  const places = new Map<string, Standing>();
  const note = (standing: Standing) => {
    const name = `${standing.input_array} ${standing.index}`;
    const known = places.get(name);
    if (!known || rank[standing.status] > rank[known.status]) places.set(name, standing);
  };
  for (const { trace, status } of parts) for (const place of trace.objects) note({ ...place, status });
  for (const { object, kind, state, reason } of deadLetters) {
    const failed = object as unknown as AcceptedObject | null;
    const input_array = (failed && inputArrayOf(failed)) ?? kind;
    const index = Number.isSafeInteger(failed?.index) ? failed!.index : 0;
    const status = tried[state];
    note({ input_array, index, status, ...(status === 'failed' && { reason }) });
  }
  return [...places.values()];
}

const rank: Record<Status, number> = { applied: 0, accepted: 1, failed: 2 };

/** That of all objects, or that they differ. */
export function overall(objects: Standing[], unknown: number): Status | 'partially_applied' {
  const statuses = new Set(objects.map(({ status }) => status));
  const [only] = statuses;
  return statuses.size === 1 && unknown === 0 ? only! : 'partially_applied';
}
