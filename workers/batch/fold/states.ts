import type {
  AcceptedEmailChange,
  AcceptedGroupState,
  SubscriptionObject,
} from '../../../src/jobs/envelope.ts';
import type { StandardAttributes } from '../../../src/profile/attribute-rule.ts';
import { type Address, isAddress } from '../../../src/profile/identifier.ts';
import { GLOBAL, type Group } from '../../../src/store/subscription-states.ts';
import type { Changes, States, Subject } from '../changes.ts';
import type { LoadedProfile } from '../loaded-profile.ts';
import { tooManyHolders } from '../profiles.ts';
import { RELOAD, type WorkItem } from '../work-item.ts';

type Moving = Pick<Changes, 'profiles' | 'states'>;

type Phone = Pick<LoadedProfile, 'phone' | 'phoneValid'>;

type Addressed = Phone & Pick<LoadedProfile, 'email'>;

/** A text: why the state cannot be set; undefined: it is folded, even if it does nothing. */
type FoldedSubscription = string | undefined | typeof RELOAD;

/**
 * Plays one setting of a subscription or email state, in memory.
 *
 * @param place of the object in its round
 */
export function foldSubscription(
  item: WorkItem<SubscriptionObject>,
  place: number,
  changes: Changes,
): FoldedSubscription {
  return item.object.kind === 'group_state'
    ? foldGroupState(item as WorkItem<AcceptedGroupState>, changes)
    : foldEmailChange(item as WorkItem<AcceptedEmailChange>, place, changes);
}

/**
 * An address has a state whether anybody has the address or not. A user has that of the address for the group's
 * channel, or one of its own for lack of it. A user who is not there has none.
 */
function foldGroupState(
  { workspaceId, requestId, object }: WorkItem<AcceptedGroupState>,
  { groups, profiles, states }: Changes,
): FoldedSubscription {
  const { identifier, subscription_group_id, subscription_state: state } = object;
  // Whoever deletes its last holder in this round takes the address's states away behind all that the round sets. A
  // delete takes the dead letters that come before it, and none behind it.
  if (isAddress(identifier) && profiles.isContested(workspaceId, identifier)) return RELOAD;
  const profile = isAddress(identifier) ? undefined : profiles.find(workspaceId, identifier);
  if (profile === RELOAD || (profile && !profile.isLockedFor())) return RELOAD;

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
  if (subject && !archived) states.set({ subject, requestId }, group.id, { channel, state });
  return undefined;
}

/**
 * The state and the bounce are the address's, whether anybody has it or not.
 *
 * The mark as spam is that of each profile which has the address, and memory does not hold them all. So it is cleared
 * where only such objects come before it in the round: there the store says who has the address.
 *
 * @param place of the object in its round
 */
function foldEmailChange(
  { workspaceId, requestId, object }: WorkItem<AcceptedEmailChange>,
  place: number,
  { profiles, states, emails }: Changes,
): FoldedSubscription {
  const { email, state, hard_bounced, marked_as_spam } = object;
  if (profiles.isContested(workspaceId, { email })) return RELOAD;
  if (marked_as_spam === false) {
    if (emails.crowded.has(workspaceId, email)) return tooManyHolders({ email });
    if (emails.clearedSpam.length !== place) return RELOAD;
    emails.clearedSpam.push({ workspaceId, email, requestId });
  }
  const saying = { subject: { workspaceId, kind: 'email', name: email }, requestId } as const;
  if (state !== undefined) {
    states.set(saying, GLOBAL, { channel: 'email', state });
  }
  if (hard_bounced !== undefined) {
    states.mark(saying, 'hard_bounce', hard_bounced);
    emails.bounces.set(workspaceId, email, { workspaceId, email, hardBounced: hard_bounced });
  }
  return undefined;
}

function addressSubject(workspaceId: string, address: Address): Subject {
  return 'email' in address
    ? { workspaceId, kind: 'email', name: address.email }
    : { workspaceId, kind: 'phone', name: address.phone };
}

/** Whose state a profile reads and sets: that of its address for the channel, its own without one. */
export function subjectOf(profile: LoadedProfile, channel: Group['channel']): Subject {
  const { workspaceId, email } = profile;
  if (channel !== 'email') return phoneSubject(profile, profile);
  return email === null ? own(profile) : { workspaceId, kind: 'email', name: email };
}

/**
 * Whether addresses that a profile gets or loses, if it changes so, have to stay where they are until the round is
 * written. They are pinned, or those of somebody whom an identity operation of the round merges or deletes.
 */
export function meetsSealed(
  { workspaceId, profile }: { workspaceId: string; profile: Addressed | undefined },
  standard: StandardAttributes,
  { profiles }: Pick<Moving, 'profiles'>,
): boolean {
  return changedAddresses(profile, standard).some(
    (address) => profiles.isContested(workspaceId, address) || profiles.isPinned(workspaceId, address),
  );
}

/** Whether a profile that goes loses a pinned address. */
export function losesPinned(profile: LoadedProfile, { profiles }: Pick<Moving, 'profiles'>): boolean {
  return changedAddresses(profile, { email: null, phone: null }).some((address) =>
    profiles.isPinned(profile.workspaceId, address),
  );
}

/** The addresses that a profile gets or loses; one that it sets to what it is stays. */
function changedAddresses(
  profile: Addressed | undefined,
  { email, phone, phone_valid: phoneValid }: StandardAttributes,
): Address[] {
  const changed: Address[] = [];
  const mine = profile?.email ?? null;
  if (email !== undefined && email !== mine)
    for (const address of [email, mine]) if (address) changed.push({ email: address });
  const number = profile?.phoneValid ? profile.phone : null;
  const next = phoneValid ? phone : null;
  if (phone !== undefined && next !== number)
    for (const address of [next, number]) if (address) changed.push({ phone: address });
  return changed;
}

/** Whether memory knows every state that passes on when the profile gets these addresses. */
export function canMove(profile: LoadedProfile, standard: StandardAttributes, { states }: Moving): boolean {
  const { email, phone, phone_valid: phoneValid = null } = standard;
  if (!email && phone === undefined) return true;
  if (profile.isNew) states.know(own(profile));
  if (phone !== undefined) {
    const from = subjectOf(profile, 'sms');
    if (!isSame(from, phoneSubject(profile, { phone, phoneValid })) && !states.of(from)) return false;
  }
  if (email == null || profile.email !== null) return true;
  const said = ownStates(profile, 'email', states);
  if (!said?.some(([group]) => group === GLOBAL)) return said !== undefined;
  return states.isHeld(profile.workspaceId, email) !== undefined;
}

/**
 * The user's SMS and WhatsApp states go along: a number that has a state already keeps it. Without a valid
 * number they are the profile's own again, and what it said before it had one is forgotten.
 */
export function movePhone(
  profile: LoadedProfile,
  { phone, phoneValid, requestId }: Phone & { requestId: string },
  { profiles, states }: Moving,
): void {
  const from = subjectOf(profile, 'sms');
  const to = phoneSubject(profile, { phone, phoneValid });
  profiles.setPhone(profile, phone, phoneValid);
  if (isSame(from, to)) return;
  if (profile.isNew) states.know(own(profile));
  if (from.kind === 'phone') {
    for (const [group, state] of states.of(from)!) {
      if (to.kind === 'phone') states.take({ subject: to, requestId }, group, state);
      else states.set({ subject: to, requestId }, group, state);
    }
    return;
  }
  for (const [group, state] of ownStates(profile, 'phone', states)!) {
    states.take({ subject: to, requestId }, group, state);
    states.drop({ subject: from, requestId }, group, state);
  }
}

/**
 * What a profile said before it had an email address passes to its first one, where that has no state yet. An
 * address that somebody has always has a global state, `subscribed` unless another was said. Any later address
 * starts anew.
 */
export function moveEmail(
  profile: LoadedProfile,
  { email, requestId }: { email: string | null; requestId: string },
  { profiles, states }: Moving,
): void {
  const isFirst = profile.email === null && email !== null;
  profiles.setEmail(profile, email);
  if (!isFirst) return;
  if (profile.isNew) states.know(own(profile));
  const said = ownStates(profile, 'email', states)!;
  const to = subjectOf(profile, 'email');
  for (const [group, state] of said) {
    states.drop({ subject: own(profile), requestId }, group, state);
    if (group === GLOBAL) profile.setColumns({ email_subscribe: null });
    const isHeld = states.isHeld(profile.workspaceId, email) || profiles.isShared(profile, { email });
    if (group !== GLOBAL || !isHeld) states.take({ subject: to, requestId }, group, state);
  }
}

/** The profile itself: whose state it is for lack of an address. */
export function own({ workspaceId, id }: LoadedProfile): Subject {
  return { workspaceId, kind: 'profile', name: id };
}

function phoneSubject(profile: LoadedProfile, { phone, phoneValid }: Phone): Subject {
  if (phone === null || !phoneValid) return own(profile);
  return { workspaceId: profile.workspaceId, kind: 'phone', name: phone };
}

/** What a profile has said for lack of an address. */
function ownStates(profile: LoadedProfile, address: 'email' | 'phone', states: States) {
  const all = states.of(own(profile));
  return all && [...all].filter(([, { channel }]) => (channel === 'email') === (address === 'email'));
}

function isSame(a: Subject, b: Subject): boolean {
  return a.kind === b.kind && a.name === b.name;
}
