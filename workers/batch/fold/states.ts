import type {
  AcceptedEmailChange,
  AcceptedGroupState,
  SubscriptionObject,
} from '../../../src/jobs/envelope.ts';
import { type Address, isAddress } from '../../../src/profile/identifier.ts';
import type { StandardAttributes } from '../../../src/profile/standard-columns.ts';
import { GLOBAL, type Group } from '../../../src/store/subscription-states.ts';
import type { Changes, States, Subject } from '../changes.ts';
import type { LoadedProfile } from '../loaded-profile.ts';
import { tooManyHolders } from '../profiles.ts';
import { RELOAD, type WorkItem } from '../work-item.ts';

type Moving = Pick<Changes, 'profiles' | 'states'>;

type Phone = Pick<LoadedProfile, 'phone' | 'phoneValid'>;

type Addressed = Phone & Pick<LoadedProfile, 'email'>;

/** Result of a state change: the reason why it cannot be applied, or undefined if it was folded, even as a no-op. */
type FoldedSubscription = string | undefined | typeof RELOAD;

/**
 * Folds an object that sets a subscription or email state.
 *
 * @param place index of the object in its round
 */
export function foldSubscription(
  item: WorkItem<SubscriptionObject>,
  index: number,
  changes: Changes,
): FoldedSubscription {
  return item.object.kind === 'group_state'
    ? foldGroupState(item as WorkItem<AcceptedGroupState>, changes)
    : foldEmailChange(item as WorkItem<AcceptedEmailChange>, index, changes);
}

/**
 * Sets the state of a subscription group. An address has a state even without any holder. A user has the state of its
 * address for the group's channel, or a state of its own if it has no such address. If the identifier matches no user,
 * the object has no effect.
 */
function foldGroupState(
  { workspaceId, requestId, object }: WorkItem<AcceptedGroupState>,
  { groups, profiles, states }: Changes,
): FoldedSubscription {
  const { identifier, subscription_group_id, subscription_state: state } = object;
  // If this round deletes the last holder of the address, it removes the address's states after it has set all others.
  // A delete also removes the dead letters before it, but not later ones.
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
 * Sets the global state, the hard bounce and the spam mark of an email address. The state and the bounce belong to the
 * address, even without any holder.
 *
 * The spam mark belongs to each profile with the address, and not all of them are loaded. It is therefore cleared only
 * if all earlier objects of the round clear spam marks too: the holders are then as stored in Postgres.
 *
 * @param place index of the object in its round
 */
function foldEmailChange(
  { workspaceId, requestId, object }: WorkItem<AcceptedEmailChange>,
  index: number,
  { profiles, states, emails }: Changes,
): FoldedSubscription {
  const { email, state, hard_bounced, marked_as_spam } = object;
  if (profiles.isContested(workspaceId, { email })) return RELOAD;
  if (marked_as_spam === false) {
    if (emails.crowded.has(workspaceId, email)) return tooManyHolders({ email });
    if (emails.clearedSpam.length !== index) return RELOAD;
    emails.clearedSpam.push({ workspaceId, email, requestId });
  }
  const write = { subject: { workspaceId, kind: 'email', name: email }, requestId } as const;
  if (state !== undefined) {
    states.set(write, GLOBAL, { channel: 'email', state });
  }
  if (hard_bounced !== undefined) {
    states.mark(write, 'hard_bounce', hard_bounced);
    emails.bounces.set(workspaceId, email, { workspaceId, email, hardBounced: hard_bounced });
  }
  return undefined;
}

function addressSubject(workspaceId: string, address: Address): Subject {
  return 'email' in address
    ? { workspaceId, kind: 'email', name: address.email }
    : { workspaceId, kind: 'phone', name: address.phone };
}

/** Returns the owner of a profile's state for a channel: its address, or the profile itself without one. */
export function subjectOf(profile: LoadedProfile, channel: Group['channel']): Subject {
  const { workspaceId, email } = profile;
  if (channel !== 'email') return phoneSubject(profile, profile);
  return email === null ? own(profile) : { workspaceId, kind: 'email', name: email };
}

/**
 * Returns whether a change would add or remove an address that must keep its holders until the round is written. Such
 * an address is pinned, or belongs to a user that an identity operation of the round merges or deletes.
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

/** Returns whether a profile that is deleted has a pinned address. */
export function losesPinned(profile: LoadedProfile, { profiles }: Pick<Moving, 'profiles'>): boolean {
  return changedAddresses(profile, { email: null, phone: null }).some((address) =>
    profiles.isPinned(profile.workspaceId, address),
  );
}

/** Returns the addresses that a profile gets or loses; an unchanged address is not included. */
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

/** Returns whether all states are loaded that move when the profile gets these addresses. */
export function canMove(profile: LoadedProfile, standard: StandardAttributes, { states }: Moving): boolean {
  const { email, phone, phone_valid: phoneValid = null } = standard;
  if (!email && phone === undefined) return true;
  if (profile.isNew) states.know(own(profile));
  if (phone !== undefined) {
    const from = subjectOf(profile, 'sms');
    if (!isSame(from, phoneSubject(profile, { phone, phoneValid })) && !states.of(from)) return false;
  }
  if (email == null || profile.email !== null) return true;
  const ownGroups = ownStates(profile, 'email', states);
  if (!ownGroups?.some(([group]) => group === GLOBAL)) return ownGroups !== undefined;
  return states.isHeld(profile.workspaceId, email) !== undefined;
}

/**
 * Sets the phone number and moves the SMS and WhatsApp states of the user to it. A number that already has a state
 * keeps that state. Without a valid number, the states become the profile's own, and replace its states from before it
 * had a number.
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
 * Sets the email address. The states of a profile without an address move to its first address, if that has no state
 * yet. An address with a holder always has a global state, which is `subscribed` by default. Later addresses of the
 * profile take over no states.
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
  const ownGroups = ownStates(profile, 'email', states)!;
  const to = subjectOf(profile, 'email');
  for (const [group, state] of ownGroups) {
    states.drop({ subject: own(profile), requestId }, group, state);
    if (group === GLOBAL) profile.setColumns({ email_subscribe: null });
    const isHeld = states.isHeld(profile.workspaceId, email) || profiles.isShared(profile, { email });
    if (group !== GLOBAL || !isHeld) states.take({ subject: to, requestId }, group, state);
  }
}

/** Returns the profile as the owner of states, for channels without an address. */
export function own({ workspaceId, id }: LoadedProfile): Subject {
  return { workspaceId, kind: 'profile', name: id };
}

function phoneSubject(profile: LoadedProfile, { phone, phoneValid }: Phone): Subject {
  if (phone === null || !phoneValid) return own(profile);
  return { workspaceId: profile.workspaceId, kind: 'phone', name: phone };
}

/** Returns the profile's own states for a kind of address; undefined if they are not loaded. */
function ownStates(profile: LoadedProfile, address: 'email' | 'phone', states: States) {
  const all = states.of(own(profile));
  return all && [...all].filter(([, { channel }]) => (channel === 'email') === (address === 'email'));
}

function isSame(a: Subject, b: Subject): boolean {
  return a.kind === b.kind && a.name === b.name;
}
