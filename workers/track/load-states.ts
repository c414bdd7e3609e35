import type { StandardAttributes } from '../../src/profile/attributes-delta.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import { type Connection, sendTogether } from '../../src/store/database.ts';
import { findHeldEmails } from '../../src/store/subscriptions/find-held-emails.ts';
import { findStates } from '../../src/store/subscriptions/find-states.ts';
import type { HeldProfile } from './held-profile.ts';
import { own, subjectOf } from './move-states.ts';
import type { Profiles } from './profiles.ts';
import { States, type Subject } from './states.ts';
import { scoped, type Work } from './work.ts';

/** An attribute object that sets an address. */
interface Setter {
  workspaceId: string;
  email: string | undefined;
  /** A valid one. */
  phone: string | undefined;
  setsPhone: boolean;
  reached: HeldProfile[];
  /** Whether another attribute object of the batch names the same user, as far as can be told. */
  isRepeated: boolean;
}

/**
 * Looks up the states that pass on when profiles of a batch get another address: two statements for the whole
 * batch, none when nobody does.
 */
export async function loadStates(tx: Connection, works: Work[], profiles: Profiles): Promise<States> {
  const states = new States();
  if (!works.some((work) => setsAddress(work) || pairOf(work) !== undefined)) return states;
  const subjects = new Map<string, Subject>();
  const emails = new Map<string, { workspaceId: string; email: string }>();
  const want = (subject: Subject) =>
    subjects.set(scoped(subject.workspaceId, `${subject.kind}\0${subject.name}`), subject);
  const all = [...setters(works, profiles), ...mergers(works, profiles)];
  for (const { workspaceId, email, phone, setsPhone, reached, isRepeated } of all) {
    const isNew = reached.length === 0 && isRepeated;
    const withoutEmail = reached.filter((profile) => profile.email === null);
    const moving = reached.filter(
      (profile) => (profile.phoneValid ? profile.phone : null) !== (phone ?? null),
    );
    if (email !== undefined && (isNew || withoutEmail.length > 0)) {
      for (const profile of withoutEmail) want(own(profile));
      emails.set(scoped(workspaceId, email), { workspaceId, email });
    }
    if (setsPhone && (isNew || moving.length > 0)) {
      for (const profile of moving) want(subjectOf(profile, 'sms'));
      if (phone !== undefined) want({ workspaceId, kind: 'phone', name: phone });
    }
  }
  await sendTogether(tx, [
    () => subjects.size > 0 && takeInStates(tx, states, [...subjects.values()]),
    () => emails.size > 0 && noteHolders(tx, states, [...emails.values()], profiles),
  ]);
  return states;
}

function setsAddress({ object }: Work): boolean {
  if (object.kind !== 'attributes' || !object.standard) return false;
  return Boolean(object.standard.email) || object.standard.phone !== undefined;
}

function* setters(works: Work[], profiles: Profiles): Iterable<Setter> {
  const named = new Map<string, number>();
  const setting: { name: string; work: Work; identifier: Identifier; standard: StandardAttributes }[] = [];
  for (const work of works) {
    const { workspaceId, object } = work;
    if (object.kind !== 'attributes' || !object.identifier) continue;
    const { identifier, standard } = object;
    const name = scoped(workspaceId, identifierKey(identifier));
    named.set(name, (named.get(name) ?? 0) + 1);
    if (standard && setsAddress(work)) setting.push({ name, work, identifier, standard });
  }
  // Whom an address comes to mean within the batch.
  const brought = new Map<string, Set<HeldProfile>>();
  for (const { name, work, identifier, standard } of setting) {
    for (const address of otherAddresses(name, work.workspaceId, standard)) {
      if (!named.has(address)) continue;
      let profilesBrought = brought.get(address);
      if (!profilesBrought) {
        profilesBrought = new Set();
        brought.set(address, profilesBrought);
      }
      for (const profile of profiles.reachable(work.workspaceId, identifier)) profilesBrought.add(profile);
    }
  }
  for (const { name, work, identifier, standard } of setting) {
    const { workspaceId } = work;
    const { email, phone, phone_valid } = standard;
    yield {
      workspaceId,
      email: email ?? undefined,
      phone: (phone_valid && phone) || undefined,
      setsPhone: phone !== undefined,
      reached: [...profiles.reachable(workspaceId, identifier), ...(brought.get(name) ?? [])],
      isRepeated:
        named.get(name)! > 1 ||
        otherAddresses(name, workspaceId, standard).some((address) => named.has(address)),
    };
  }
}

/** The profiles that take in another are as attribute objects that set its addresses. */
function* mergers(works: Work[], profiles: Profiles): Iterable<Setter> {
  for (const work of works) {
    const pair = pairOf(work);
    if (!pair) continue;
    const { workspaceId } = work;
    const reached = [...profiles.reachable(workspaceId, pair.keep)];
    for (const { email, phone, phoneValid } of profiles.reachable(workspaceId, pair.merge)) {
      const valid = (phoneValid && phone) || undefined;
      yield {
        workspaceId,
        email: email ?? undefined,
        phone: valid,
        setsPhone: phone !== null,
        reached,
        isRepeated: true,
      };
    }
  }
}

/** Whom an object merges into whom. */
function pairOf({ object }: Work): { merge: Identifier; keep: Identifier } | undefined {
  if (object.kind === 'merge') return { merge: object.merge.identifier, keep: object.keep.identifier };
  if (object.kind !== 'identify') return undefined;
  return { merge: object.user.identifier, keep: { external_id: object.external_id } };
}

/** The addresses that an object sets besides the one that names its user. */
function otherAddresses(
  name: string,
  workspaceId: string,
  { email, phone, phone_valid }: StandardAttributes,
): string[] {
  const addresses: string[] = [];
  if (email) addresses.push(scoped(workspaceId, identifierKey({ email })));
  if (phone && phone_valid) addresses.push(scoped(workspaceId, identifierKey({ phone })));
  return addresses.filter((address) => address !== name);
}

async function takeInStates(tx: Connection, states: States, subjects: Subject[]): Promise<void> {
  for (const subject of subjects) states.know(subject);
  const found = await findStates(
    tx,
    subjects.map(({ workspaceId }) => workspaceId),
    subjects.map(({ kind }) => kind),
    subjects.map(({ name }) => name),
  );
  for (const state of found) states.takeIn(state);
}

/** Those in hand are asked as the batch is folded: they may get and lose addresses in it. */
async function noteHolders(
  tx: Connection,
  states: States,
  emails: { workspaceId: string; email: string }[],
  profiles: Profiles,
): Promise<void> {
  for (const { workspaceId, email } of emails) states.noteHeld(workspaceId, email, false);
  const inHand = emails.flatMap(({ workspaceId, email }) => [...profiles.reachable(workspaceId, { email })]);
  const held = await findHeldEmails(
    tx,
    emails.map(({ workspaceId }) => workspaceId),
    emails.map(({ email }) => email),
    inHand.map(({ id }) => id),
  );
  for (const { workspaceId, email } of held) states.noteHeld(workspaceId, email, true);
}
