import type { Caller, Plan, QueuedOperation } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';

/**
 * Plans with the subscription groups that the edge remembers; when the request names one that it does not
 * know, plans again with those of the store, since the group may have been made a second ago.
 */
export async function planWithGroups(
  operation: QueuedOperation,
  caller: Caller,
  body: Record<string, Json>,
  renewGroups: () => Promise<ReadonlySet<string>>,
): Promise<Plan> {
  const missed: string[] = [];
  const hasGroup = (id: string) => caller.hasGroup(id) || missed.push(id) === 0;
  let plan: Plan | undefined;
  let refusal: unknown;
  try {
    plan = operation.plan({ ...caller, hasGroup }, body);
  } catch (error) {
    refusal = error;
  }
  if (missed.length > 0) {
    const groups = await renewGroups();
    if (missed.some((id) => groups.has(id))) {
      return operation.plan({ ...caller, hasGroup: (id) => groups.has(id) }, body);
    }
  }
  if (plan) return plan;
  throw refusal;
}
