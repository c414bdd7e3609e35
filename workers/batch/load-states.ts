import type { UserSelector } from '../../src/jobs/payloads.ts';
import type { StandardAttributes } from '../../src/profile/attribute-rule.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { identifierKey } from '../../src/queue/lanes.ts';
import type { Connection } from '../../src/store/database.ts';
import { findHeldEmails } from '../../src/store/email-listing.ts';
import { sendTogether } from '../../src/store/send-together.ts';
import { findStates } from '../../src/store/subscription-states.ts';
import { own, subjectOf } from './fold/states.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import { chosenBy } from './lock.ts';
import type { Profiles } from './profiles.ts';
import { States, type Subject } from './states.ts';
import { scoped, type WorkItem } from './work-item.ts';

/** What objects may do to the addresses of some profiles. */
interface Setting {
  workspaceId: string;
  reached: Iterable<LoadedProfile>;
  /** Those that they may get. */
  emails: string[];
  /** Valid ones that they may get; undefined: they may lose theirs. */
  phones: ReadonlySet<string | undefined>;
  /** Whether a user that the round makes may be reached. */
  mayBeNew: boolean;
}

/**
 * Looks up the states that pass on when profiles of a round get another address: two statements for the whole
 * round, none when nobody does.
 */
export async function loadStates(tx: Connection, items: WorkItem[], profiles: Profiles): Promise<States> {
  const states = new States();
  if (!items.some(mayMoveAddress)) return states;
  const subjects = new Map<string, Subject>();
  const wanted = new Map<string, { workspaceId: string; email: string }>();
  const want = (subject: Subject) =>
    subjects.set(scoped(subject.workspaceId, `${subject.kind}\0${subject.name}`), subject);
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
      for (const email of emails) wanted.set(scoped(workspaceId, email), { workspaceId, email });
    for (const profile of moving) want(subjectOf(profile, 'sms'));
    if (!isNew && moving.length === 0) continue;
    for (const phone of phones) if (phone !== undefined) want({ workspaceId, kind: 'phone', name: phone });
  }
  await sendTogether(tx, [
    () => subjects.size > 0 && takeInStates(tx, states, [...subjects.values()]),
    () => wanted.size > 0 && noteHolders(tx, { states, profiles }, [...wanted.values()]),
  ]);
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
 * One for each name by which attribute objects reach users whose addresses they set: however many do, whom the name
 * may mean is looked at once.
 */
function settings(items: WorkItem[], profiles: Profiles): Setting[] {
  if (!items.some(setsAddress)) return [];
  const named = new Map<string, number>();
  const setting = new Map<
    string,
    { workspaceId: string; identifier: Identifier; standards: StandardAttributes[] }
  >();
  for (const item of items) {
    const { workspaceId, object } = item;
    if (object.kind !== 'attributes' || !object.identifier) continue;
    const { identifier, standard } = object;
    const name = scoped(workspaceId, identifierKey(identifier));
    named.set(name, (named.get(name) ?? 0) + 1);
    if (!standard || !setsAddress(item)) continue;
    const before = setting.get(name);
    if (before) before.standards.push(standard);
    else setting.set(name, { workspaceId, identifier, standards: [standard] });
  }
  // Whom an address comes to mean within the round.
  const brought = new Map<string, Set<LoadedProfile>>();
  const repeated = new Set<string>();
  for (const [name, { workspaceId, identifier, standards }] of setting) {
    const addresses = new Set(standards.flatMap((standard) => otherAddresses(name, workspaceId, standard)));
    for (const address of addresses) {
      if (!named.has(address)) continue;
      repeated.add(name);
      const sofar = brought.get(address) ?? new Set();
      for (const profile of profiles.reachable(workspaceId, identifier)) sofar.add(profile);
      brought.set(address, sofar);
    }
  }
  return [...setting].map(([name, { workspaceId, identifier, standards }]) => ({
    workspaceId,
    reached: [...profiles.reachable(workspaceId, identifier), ...(brought.get(name) ?? [])],
    emails: standards.flatMap(({ email }) => email ?? []),
    phones: new Set(
      standards.flatMap(({ phone, phone_valid }) =>
        phone === undefined ? [] : [(phone_valid && phone) || undefined],
      ),
    ),
    mayBeNew: named.get(name)! > 1 || repeated.has(name),
  }));
}

function mayMoveAddress(item: WorkItem): boolean {
  return setsAddress(item) || pairOf(item) !== undefined;
}

/** Who takes in another is as one whom attribute objects give the other's addresses. */
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

/** Whom an object merges into whom. */
function pairOf({ object }: WorkItem): { merge: UserSelector; keep: UserSelector } | undefined {
  if (object.kind === 'merge') return { merge: object.merge, keep: object.keep };
  if (object.kind !== 'identify') return undefined;
  return { merge: object.user, keep: { identifier: { external_id: object.external_id } } };
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
  for (const state of await findStates(tx, subjects)) states.takeIn(state);
}

/** Those in hand are asked as the round is folded: they may get and lose addresses in it. */
async function noteHolders(
  tx: Connection,
  { states, profiles }: { states: States; profiles: Profiles },
  emails: { workspaceId: string; email: string }[],
): Promise<void> {
  for (const { workspaceId, email } of emails) states.noteHeld(workspaceId, email, false);
  const inHand = emails.flatMap(({ workspaceId, email }) => [...profiles.reachable(workspaceId, { email })]);
  const held = await findHeldEmails(tx, {
    workspaceIds: emails.map(({ workspaceId }) => workspaceId),
    emails: emails.map(({ email }) => email),
    except: inHand.map(({ id }) => id),
  });
  for (const { workspaceId, email } of held) states.noteHeld(workspaceId, email, true);
}
