import type { Caller, Plan, QueuedOperation } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';
import type { Channel } from '../store/subscriptions/find-groups.ts';

/**
 * Plans with the subscription groups that the edge remembers; when the request names one that it does not
 * know, plans again with those of the store, since the group may have been made a second ago.
 */
export async function planWithGroups(
  operation: QueuedOperation,
  caller: Caller,
  body: Record<string, Json>,
  renewGroups: () => Promise<ReadonlyMap<string, Channel>>,
): Promise<Plan> {
  const missed: string[] = [];
  const channelOf = (id: string) => {
    const channel = caller.channelOf(id);
    if (channel === undefined) missed.push(id);
    return channel;
  };
  let plan: Plan | undefined;
  let refusal: unknown;
  try {
    plan = operation.plan({ ...caller, hasGroup: (id) => channelOf(id) !== undefined, channelOf }, body);
  } catch (error) {
    refusal = error;
  }
  if (missed.length > 0) {
    const groups = await renewGroups();
    if (missed.some((id) => groups.has(id))) {
      const renewed = { hasGroup: (id: string) => groups.has(id), channelOf: (id: string) => groups.get(id) };
      return operation.plan({ ...caller, ...renewed }, body);
    }
  }
  if (plan) return plan;
  throw refusal;
}
