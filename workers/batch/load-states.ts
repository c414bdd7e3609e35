import type { UserSelector } from '../../src/jobs/envelope.ts';
import type { Address, Identifier } from '../../src/profile/identifier.ts';
import type { StandardAttributes } from '../../src/profile/standard-columns.ts';
import type { Connection } from '../../src/store/database.ts';
import { findStates } from '../../src/store/subscription-states.ts';
import { findHeldEmails } from '../../src/store/suppression-lists.ts';
import { sendPipelined } from '../../src/store/transactions.ts';
import { ByIdentifier, ByWorkspace } from './by-workspace.ts';
import { BySubject, States, type Subject } from './changes.ts';
import { own, subjectOf } from './fold/states.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import { chosenBy } from './lock.ts';
import type { Profiles } from './profiles.ts';
import type { WorkItem } from './work-item.ts';

/** Changes that objects may make to the addresses of some profiles. */
interface Setting {
  workspaceId: string;
  reached: Iterable<LoadedProfile>;
  /** Email addresses that the profiles may get. */
  emails: string[];
  /** Valid phone numbers that the profiles may get; contains undefined if they may lose theirs. */
  phones: ReadonlySet<string | undefined>;
  /** Whether the objects may reach a user that the round creates. */
  mayBeNew: boolean;
}

/**
 * Reads the states that move when profiles of a round get another address, with two statements for the whole round. If
 * no address can change, it sends no statement.
 */
export async function loadStates(tx: Connection, items: WorkItem[], profiles: Profiles): Promise<States> {
  const states = new States();
  if (!items.some(mayMoveAddress)) return states;
  const subjects = new BySubject<Subject>();
  const wanted = new ByWorkspace<{ workspaceId: string; email: string }>();
  const want = (subject: Subject) => subjects.set(subject, subject);
  for (const { workspaceId, reached, emails, phones, mayBeNew } of [
    ...settings(items, profiles),
    ...mergings(items, profiles),
  ]) {
    const all = [...reached];
    const isNew = all.length === 0 && mayBeNew;
    const withoutEmail = all.filter((profile) => profile.email === null);
    const moving = all.filter((profile) => changesPhone(profile, phones));
    if (emails.length > 0) for (const profile of withoutEmail) want(own(profile));
    if (isNew || withoutEmail.length > 0)
      for (const email of emails) wanted.set(workspaceId, email, { workspaceId, email });
    for (const profile of moving) want(subjectOf(profile, 'sms'));
    if (!isNew && moving.length === 0) continue;
    for (const phone of phones) if (phone !== undefined) want({ workspaceId, kind: 'phone', name: phone });
  }
  const [wantedSubjects, emails] = [[...subjects.values()], [...wanted.values()]];
  const [stored, held] = await sendPipelined(tx, [
    () => wantedSubjects.length > 0 && findStates(tx, wantedSubjects),
    () => emails.length > 0 && findHeld(tx, profiles, emails),
  ]);
  for (const subject of wantedSubjects) states.know(subject);
  for (const state of stored || []) states.takeIn(state);
  for (const { workspaceId, email } of emails) states.noteHeld(workspaceId, email, false);
  for (const { workspaceId, email } of held || []) states.noteHeld(workspaceId, email, true);
  return states;
}

function changesPhone(
  { phone, phoneValid }: LoadedProfile,
  phones: ReadonlySet<string | undefined>,
): boolean {
  const mine = (phoneValid && phone) || undefined;
  return phones.size > 1 || (phones.size === 1 && !phones.has(mine));
}

function setsAddress({ object }: WorkItem): boolean {
  if (object.kind !== 'attributes' || !object.standard) return false;
  return Boolean(object.standard.email) || object.standard.phone !== undefined;
}

/**
 * Returns one entry per identifier by which attribute objects reach users whose addresses they set. The profiles that
 * the identifier may mean are collected once, independent of the number of objects.
 */
function settings(items: WorkItem[], profiles: Profiles): Setting[] {
  if (!items.some(setsAddress)) return [];
  const all = new ByIdentifier<Naming>();
  for (const item of items) {
    const { workspaceId, object } = item;
    if (object.kind !== 'attributes' || !object.identifier) continue;
    const { identifier, standard } = object;
    const existing = all.get(workspaceId, identifier);
    const naming = existing ?? { workspaceId, identifier, objects: 0, standards: [] };
    if (!existing) all.set(workspaceId, identifier, naming);
    naming.objects++;
    if (standard && setsAddress(item)) naming.standards.push(standard);
  }
  const setting = [...all.values()].filter(({ standards }) => standards.length > 0);
  // Profiles that an address may mean later in the round, because an object gives it to them.
  const brought = new ByIdentifier<Set<LoadedProfile>>();
  const repeated = new ByIdentifier<true>();
  for (const { workspaceId, identifier, standards } of setting) {
    for (const address of otherAddresses(identifier, standards)) {
      if (!all.has(workspaceId, address)) continue;
      repeated.set(workspaceId, identifier, true);
      const sofar = brought.get(workspaceId, address) ?? new Set();
      for (const profile of profiles.reachable(workspaceId, identifier)) sofar.add(profile);
      brought.set(workspaceId, address, sofar);
    }
  }
  return setting.map(({ workspaceId, identifier, objects, standards }) => ({
    workspaceId,
    reached: [
      ...profiles.reachable(workspaceId, identifier),
      ...(brought.get(workspaceId, identifier) ?? []),
    ],
    emails: standards.flatMap(({ email }) => email ?? []),
    phones: new Set(
      standards.flatMap(({ phone, phone_valid }) =>
        phone === undefined ? [] : [(phone_valid && phone) || undefined],
      ),
    ),
    mayBeNew: objects > 1 || repeated.has(workspaceId, identifier),
  }));
}

/** An identifier by which attribute objects of a round reach users. */
interface Naming {
  workspaceId: string;
  identifier: Identifier;
  /** Number of objects with the identifier. */
  objects: number;
  /** Standard attributes of the objects that set addresses. */
  standards: StandardAttributes[];
}

function mayMoveAddress(item: WorkItem): boolean {
  return setsAddress(item) || pairOf(item) !== undefined;
}

/** Returns the address changes by merges: the kept profile may get the addresses of the merged one. */
function mergings(items: WorkItem[], profiles: Profiles): Setting[] {
  const all: Setting[] = [];
  for (const item of items) {
    const pair = pairOf(item);
    if (!pair) continue;
    const { workspaceId } = item;
    const merged = [...chosenBy(pair.merge, workspaceId, profiles)];
    all.push({
      workspaceId,
      reached: chosenBy(pair.keep, workspaceId, profiles),
      emails: merged.flatMap(({ email }) => email ?? []),
      phones: new Set(
        merged.flatMap(({ phone, phoneValid }) =>
          phone === null ? [] : [(phoneValid && phone) || undefined],
        ),
      ),
      mayBeNew: merged.length > 0,
    });
  }
  return all;
}

/** Returns the selectors of the merged and the kept user, if the object can merge users. */
function pairOf({ object }: WorkItem): { merge: UserSelector; keep: UserSelector } | undefined {
  if (object.kind === 'merge') return { merge: object.merge, keep: object.keep };
  if (object.kind !== 'identify') return undefined;
  return { merge: object.user, keep: { identifier: { external_id: object.external_id } } };
}

/** Returns the addresses that objects set, each once, without the address that identifies their user. */
function otherAddresses(identifier: Identifier, standards: StandardAttributes[]): Address[] {
  const [emails, phones] = [new Set<string>(), new Set<string>()];
  for (const { email, phone, phone_valid } of standards) {
    if (email) emails.add(email);
    if (phone && phone_valid) phones.add(phone);
  }
  if ('email' in identifier) emails.delete(identifier.email);
  if ('phone' in identifier) phones.delete(identifier.phone);
  return [...[...emails].map((email) => ({ email })), ...[...phones].map((phone) => ({ phone }))];
}

/**
 * Finds the addresses that have a holder that is not loaded. Loaded holders are checked while the round is folded,
 * since they can get and lose addresses in it.
 */
function findHeld(tx: Connection, profiles: Profiles, emails: { workspaceId: string; email: string }[]) {
  const inHand = emails.flatMap(({ workspaceId, email }) => [...profiles.reachable(workspaceId, { email })]);
  return findHeldEmails(tx, {
    workspaceIds: emails.map(({ workspaceId }) => workspaceId),
    emails: emails.map(({ email }) => email),
    except: inHand.map(({ id }) => id),
  });
}
