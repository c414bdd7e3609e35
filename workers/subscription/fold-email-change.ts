import type { AcceptedEmailChange } from '../../src/jobs/subscription.ts';
import { GLOBAL } from '../../src/store/subscriptions/find-states.ts';
import type { Changes } from '../track/fold.ts';
import { LOOK_AGAIN } from '../track/profiles.ts';
import { scoped } from '../track/work.ts';
import type { FoldedSubscription } from './fold-subscription.ts';

/**
 * The state and the bounce are the address's, whether anybody has it or not.
 *
 * The mark as spam is that of each profile which has the address, and memory does not hold them all. So it is cleared
 * where only such objects come before it in the round: there the store says who has the address.
 *
 * @param place of the object in its round
 */
export function foldEmailChange(
  workspaceId: string,
  { email, state, hard_bounced, marked_as_spam }: AcceptedEmailChange,
  place: number,
  { profiles, states, emails }: Changes,
): FoldedSubscription {
  if (profiles.isContested(workspaceId, { email })) return LOOK_AGAIN;
  if (marked_as_spam === false) {
    if (emails.clearedSpam.length !== place) return LOOK_AGAIN;
    emails.clearedSpam.push({ workspace_id: workspaceId, email, request_id: states.request });
  }
  const address = { workspaceId, kind: 'email', name: email } as const;
  if (state !== undefined) {
    states.set(address, GLOBAL, { channel: 'email', state });
  }
  if (hard_bounced !== undefined) {
    states.mark(address, 'hard_bounce', hard_bounced);
    emails.bounces.set(scoped(workspaceId, email), { workspace_id: workspaceId, email, hard_bounced });
  }
  return undefined;
}
