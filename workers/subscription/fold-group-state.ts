import type { AcceptedGroupState } from '../../src/jobs/subscription.ts';
import { type Address, isAddress } from '../../src/profile/identifier.ts';
import type { Changes } from '../track/fold.ts';
import { subjectOf } from '../track/move-states.ts';
import { LOOK_AGAIN } from '../track/profiles.ts';
import type { Subject } from '../track/states.ts';
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
  // Whoever deletes its last holder in this round takes the address's states away behind all that the round sets; and a
  // delete takes the dead letters that come before it, and none behind it.
  if (isAddress(identifier) && profiles.isContested(workspaceId, identifier)) return LOOK_AGAIN;
  const profile = isAddress(identifier) ? undefined : profiles.find(workspaceId, identifier);
  if (profile === LOOK_AGAIN || (profile && !profile.holds())) return LOOK_AGAIN;

  const group = groups.get(subscription_group_id);
  if (group?.workspaceId !== workspaceId) {
    return `'subscription_group_id' is not valid: no subscription group has the id ${subscription_group_id}`;
  }
  const { channel, archived } = group;
  const subject = isAddress(identifier)
    ? addressSubject(workspaceId, identifier)
    : profile && subjectOf(profile, channel);
  if (subject && subject.kind !== 'profile' && (subject.kind === 'email') !== (channel === 'email')) {
    return `'${subject.kind}' is not valid: the subscription group ${subscription_group_id} is one for ${channel}`;
  }
  if (subject && !archived) states.set(subject, group.id, { channel, state });
  return undefined;
}

function addressSubject(workspaceId: string, address: Address): Subject {
  return 'email' in address
    ? { workspaceId, kind: 'email', name: address.email }
    : { workspaceId, kind: 'phone', name: address.phone };
}
