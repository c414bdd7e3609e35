import type { AcceptedGroupState } from '../../src/jobs/subscription.ts';
import { isAddress } from '../../src/profile/identifier.ts';
import type { Changes } from '../track/fold.ts';
import { subjectOf } from '../track/move-states.ts';
import { LOOK_AGAIN } from '../track/profiles.ts';
import type { FoldedSubscription } from './fold-subscription.ts';

/**
 * An address has a state whether anybody has the address or not; a user has that of the address for the group's
 * channel, or one of its own for lack of it. A user who is not there has none.
 */
export function foldGroupState(
  workspaceId: string,
  { identifier, subscription_group_id, subscription_state: state }: AcceptedGroupState,
  { groups, profiles, states }: Changes,
): FoldedSubscription {
  const group = groups.get(subscription_group_id);
  if (group?.workspaceId !== workspaceId) {
    return `'subscription_group_id' is not valid: no subscription group has the id ${subscription_group_id}`;
  }
  const { channel, archived } = group;
  if (isAddress(identifier)) {
    const kind = 'email' in identifier ? 'email' : 'phone';
    if ((kind === 'email') !== (channel === 'email')) {
      return `'${kind}' is not valid: the subscription group ${subscription_group_id} is one for ${channel}`;
    }
    // Whoever deletes its last holder in this round takes its states away behind all that the round sets.
    if (profiles.isContested(workspaceId, identifier)) return LOOK_AGAIN;
    const name = 'email' in identifier ? identifier.email : identifier.phone;
    if (!archived) states.set({ workspaceId, kind, name }, group.id, { channel, state });
    return undefined;
  }
  const profile = profiles.find(workspaceId, identifier);
  if (profile === LOOK_AGAIN) return LOOK_AGAIN;
  if (!profile) return undefined;
  if (!profile.holds()) return LOOK_AGAIN;
  if (!archived) states.set(subjectOf(profile, channel), group.id, { channel, state });
  return undefined;
}
