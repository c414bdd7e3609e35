import type { StandardAttributes } from '../../../src/profile/attribute-rule.ts';
import type { Address } from '../../../src/profile/identifier.ts';
import { GLOBAL, type Group } from '../../../src/store/subscription-states.ts';
import type { Changes } from '../changes.ts';
import type { HeldProfile } from '../held-profile.ts';
import type { States, Subject } from '../states.ts';

type Moving = Pick<Changes, 'profiles' | 'states'>;
type Phone = Pick<HeldProfile, 'phone' | 'phoneValid'>;
type Addressed = Phone & Pick<HeldProfile, 'email'>;

/** Whose state a profile reads and sets: that of its address for the channel, its own without one. */
export function subjectOf(profile: HeldProfile, channel: Group['channel']): Subject {
  const { workspaceId, email } = profile;
  if (channel !== 'email') return phoneSubject(profile, profile);
  return email === null ? own(profile) : { workspaceId, kind: 'email', name: email };
}

/**
 * Whether addresses that a profile gets or loses, if it changes so, have to stay where they are until the round is
 * written: they are those of somebody whom an identity operation of the round merges or deletes, or pinned.
 */
export function meetsSealed(
  workspaceId: string,
  profile: Addressed | undefined,
  standard: StandardAttributes,
  { profiles }: Pick<Moving, 'profiles'>,
): boolean {
  return changedAddresses(profile, standard).some(
    (address) => profiles.isContested(workspaceId, address) || profiles.isPinned(workspaceId, address),
  );
}

/** Whether a profile that goes loses a pinned address. */
export function losesPinned(profile: HeldProfile, { profiles }: Pick<Moving, 'profiles'>): boolean {
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
export function canMove(profile: HeldProfile, standard: StandardAttributes, { states }: Moving): boolean {
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
  profile: HeldProfile,
  phone: string | null,
  valid: boolean | null,
  changes: Moving,
): void {
  const { profiles, states } = changes;
  const from = subjectOf(profile, 'sms');
  const to = phoneSubject(profile, { phone, phoneValid: valid });
  profiles.setPhone(profile, phone, valid);
  if (isSame(from, to)) return;
  if (profile.isNew) states.know(own(profile));
  if (from.kind === 'phone') {
    for (const [group, state] of states.of(from)!) {
      if (to.kind === 'phone') states.take(to, group, state);
      else states.set(to, group, state);
    }
    return;
  }
  for (const [group, state] of ownStates(profile, 'phone', states)!) {
    states.take(to, group, state);
    states.drop(from, group, state);
  }
}

/**
 * What a profile said before it had an email address passes to its first one, where that has no state yet. An
 * address that somebody has always has a global state, `subscribed` unless another was said. Any later address
 * starts anew.
 */
export function moveEmail(profile: HeldProfile, email: string | null, { profiles, states }: Moving): void {
  const isFirst = profile.email === null && email !== null;
  profiles.setEmail(profile, email);
  if (!isFirst) return;
  if (profile.isNew) states.know(own(profile));
  const said = ownStates(profile, 'email', states)!;
  const to = subjectOf(profile, 'email');
  for (const [group, state] of said) {
    states.drop(own(profile), group, state);
    if (group === GLOBAL) profile.columns.email_subscribe = null;
    const isHeld = states.isHeld(profile.workspaceId, email) || profiles.isShared(profile, { email });
    if (group !== GLOBAL || !isHeld) states.take(to, group, state);
  }
}

/** The profile itself: whose state it is for lack of an address. */
export function own({ workspaceId, id }: HeldProfile): Subject {
  return { workspaceId, kind: 'profile', name: id };
}

function phoneSubject(profile: HeldProfile, { phone, phoneValid }: Phone): Subject {
  if (phone === null || !phoneValid) return own(profile);
  return { workspaceId: profile.workspaceId, kind: 'phone', name: phone };
}

/** What a profile has said for lack of an address. */
function ownStates(profile: HeldProfile, address: 'email' | 'phone', states: States) {
  const all = states.of(own(profile));
  return all && [...all].filter(([, { channel }]) => (channel === 'email') === (address === 'email'));
}

function isSame(a: Subject, b: Subject): boolean {
  return a.kind === b.kind && a.name === b.name;
}
