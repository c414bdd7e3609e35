import type {
  AcceptedEmailChange,
  AcceptedGroupState,
  SubscriptionObject,
} from '../../../src/jobs/payloads.ts';
import { type Address, isAddress } from '../../../src/profile/identifier.ts';
import { GLOBAL } from '../../../src/store/subscription-states.ts';
import type { Changes } from '../changes.ts';
import { tooManyHolders } from '../profiles.ts';
import type { Subject } from '../states.ts';
import { RELOAD, scoped, type WorkItem } from '../work-item.ts';
import { subjectOf } from './states.ts';

/**
 * The state and the bounce are the address's, whether anybody has it or not.
 *
 * The mark as spam is that of each profile which has the address, and memory does not hold them all. So it is cleared
 * where only such objects come before it in the round: there the store says who has the address.
 *
 * @param place of the object in its round
 */
function foldEmailChange(
  workspaceId: string,
  { email, state, hard_bounced, marked_as_spam }: AcceptedEmailChange,
  place: number,
  { profiles, states, emails }: Changes,
): FoldedSubscription {
  if (profiles.isContested(workspaceId, { email })) return RELOAD;
  if (marked_as_spam === false) {
    if (emails.crowded.has(scoped(workspaceId, email))) return tooManyHolders({ email });
    if (emails.clearedSpam.length !== place) return RELOAD;
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

/**
 * An address has a state whether anybody has the address or not; a user has that of the address for the group's
 * channel, or one of its own for lack of it. A user who is not there has none.
 */
function foldGroupState(
  workspaceId: string,
  { identifier, subscription_group_id, subscription_state: state }: AcceptedGroupState,
  { groups, profiles, states }: Changes,
): FoldedSubscription {
  // Whoever deletes its last holder in this round takes the address's states away behind all that the round sets; and a
  // delete takes the dead letters that come before it, and none behind it.
  if (isAddress(identifier) && profiles.isContested(workspaceId, identifier)) return RELOAD;
  const profile = isAddress(identifier) ? undefined : profiles.find(workspaceId, identifier);
  if (profile === RELOAD || (profile && !profile.holds())) return RELOAD;

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

/** A text: why the state cannot be set; undefined: it is folded, even if it does nothing. */
type FoldedSubscription = string | undefined | typeof RELOAD;

/**
 * Plays one setting of a subscription or email state, in memory.
 *
 * @param place of the object in its round
 */
export function foldSubscription(
  { workspaceId, object }: WorkItem<SubscriptionObject>,
  place: number,
  changes: Changes,
): FoldedSubscription {
  return object.kind === 'group_state'
    ? foldGroupState(workspaceId, object, changes)
    : foldEmailChange(workspaceId, object, place, changes);
}
