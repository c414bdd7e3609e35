import { type AcceptedAttributes, namedIdentifiers, type UserSelector } from '../../src/jobs/envelope.ts';
import { type Identifier, isAddress } from '../../src/profile/identifier.ts';
import { storedNameBytes } from '../../src/profile/json.ts';
import type { Connection } from '../../src/store/database.ts';
import { type LargeAttributes, readLargeAttributes } from '../../src/store/profile-attributes.ts';
import { lockProfiles } from '../../src/store/profiles.ts';
import { ByWorkspace } from './by-workspace.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import { type Profiles, pick } from './profiles.ts';
import { isActivity, isTrack, selectorsOf, type WorkItem } from './work-item.ts';

/** Whom an identity operation chooses, or may choose, as they are stored. */
function selectedBy({ workspaceId, object }: WorkItem, profiles: Profiles): LoadedProfile[] {
  return selectorsOf(object).flatMap((selector) => [...chosenBy(selector, workspaceId, profiles)]);
}

/** Whom a selector means; for an address the one of those who have it, or nobody. */
export function chosenBy(
  selector: UserSelector,
  workspaceId: string,
  profiles: Profiles,
): Iterable<LoadedProfile> {
  const { identifier } = selector;
  if (!isAddress(identifier)) return profiles.reachable(workspaceId, identifier);
  if (profiles.isCrowded(workspaceId, identifier)) return [];
  const found = pick(profiles, workspaceId, selector);
  return typeof found === 'object' ? [found] : [];
}

/** What each profile is locked for. */
type Wanted = Map<LoadedProfile, Want>;

interface Want {
  /** Attribute objects that may be about it. */
  objects: AcceptedAttributes[];
  /** Whether the size of its attributes decides what can be done with it. */
  measured: boolean;
  /** Whether the objects overwrite what they name, whatever is stored. */
  isBlind: boolean;
}

/** Of up to so many who share an address each is locked; of more only the one whom it means as the round begins. */
const FEW_HOLDERS = 8;

/**
 * Bytes of stored custom attributes that one round takes in hand: less than a tenth of a second of worker and Postgres
 * together, of the costliest kind. Nobody has a turn before it is over.
 */
const ROUND_BYTES = 524_288;

/** How often the rounds of a batch may take a user in hand, on average; up to as many bytes each. */
const AGAIN = 2;
const MOST_ROUND_BYTES = 8 * ROUND_BYTES;

/** What is known of whoever is overwritten only: that it is little. */
const LITTLE = { names: new Set<string>(), values: {}, bytes: 0 };

/**
 * Locks whom the attribute objects and identity operations name, and reads the custom attributes that changes
 * start from: those of as many objects as a round may be about.
 *
 * Where a workspace has one lane nobody else changes its profiles meanwhile. So nobody is locked there who is only
 * overwritten: the update locks the row itself, and fails should it be gone. With more lanes all are locked in one order.
 *
 * @returns how many of the objects, from the first, can be folded in this round; undefined when somebody is gone:
 * merged or deleted by another lane since it was found
 */
export async function lockChanged(
  tx: Connection,
  items: WorkItem[],
  profiles: Profiles,
): Promise<number | undefined> {
  const wanted = wantedBy(items, profiles);
  if (wanted.size === 0) return items.length;
  const asked: { profile: LoadedProfile; keys: ReadonlySet<string>; measured: boolean }[] = [];
  for (const [profile, { objects, measured, isBlind }] of wanted)
    if (isBlind) profile.hold(LITTLE);
    else asked.push({ profile, keys: keysOf(objects), measured });
  if (asked.length === 0) return items.length;
  const locked = await lockProfiles(tx, asked);
  const large = new Map<LoadedProfile, number>();
  for (const row of locked) {
    const { profile, keys } = asked[row.place - 1]!;
    profiles.refresh(profile, row);
    if (row.bytes !== null) large.set(profile, row.bytes);
    else profile.hold({ names: keys, values: row.custom ?? {}, bytes: 0 });
  }
  if (locked.length < asked.length) return undefined;
  for (const item of items)
    if (!isActivity(item) && !isAboutOne(item) && !isSelectionLocked(item, profiles, wanted))
      return undefined;
  if (large.size === 0) return items.length;
  const count = countOfRound(items, profiles, large);
  await holdLarge(tx, wantedBy(items.slice(0, count), profiles), large);
  return count;
}

/** Another lane may have changed who is chosen, before the locks were there. */
function isSelectionLocked(item: WorkItem, profiles: Profiles, wanted: Wanted): boolean {
  return [...selectedBy(item, profiles), ...changedBy(item, profiles)].every((profile) =>
    wanted.has(profile),
  );
}

/**
 * How many objects are about no more than a round should be; one at least. Where rounds so small would take the same
 * users in hand again and again they are made larger, since each time costs as much.
 */
function countOfRound(
  items: WorkItem[],
  profiles: Profiles,
  large: ReadonlyMap<LoadedProfile, number>,
): number {
  const total = sum(large.values());
  // An object names a user by several identifiers, or twice: a merge of somebody with themselves.
  const about = items.map((item) => [
    ...new Set([...wantsOf(item, profiles)].flatMap(({ profile }) => (large.has(profile) ? [profile] : []))),
  ]);
  for (let most = ROUND_BYTES; ; most *= 2) {
    const rounds = roundsOf(about, large, most);
    if (
      rounds.length === 1 ||
      most >= MOST_ROUND_BYTES ||
      sum(rounds.map(({ bytes }) => bytes)) <= AGAIN * total
    )
      return rounds[0]!.count;
  }
}

/** Cuts objects, each given as the large profiles that it is about. */
function roundsOf(
  about: LoadedProfile[][],
  large: ReadonlyMap<LoadedProfile, number>,
  most: number,
): { count: number; bytes: number }[] {
  const rounds = [{ count: 0, bytes: 0 }];
  let inHand = new Set<LoadedProfile>();
  for (const profiles of about) {
    let round = rounds.at(-1)!;
    const fresh = profiles.filter((profile) => !inHand.has(profile));
    const bytes = sum(fresh.map((profile) => large.get(profile)!));
    if (round.count > 0 && bytes > 0 && round.bytes + bytes > most) {
      round = { count: 0, bytes: 0 };
      rounds.push(round);
      inHand = new Set();
      for (const profile of profiles) round.bytes += large.get(profile)!;
    } else round.bytes += bytes;
    round.count++;
    for (const profile of profiles) inHand.add(profile);
  }
  return rounds;
}

function sum(numbers: Iterable<number>): number {
  let total = 0;
  for (const number of numbers) total += number;
  return total;
}

async function holdLarge(
  tx: Connection,
  wanted: Wanted,
  large: ReadonlyMap<LoadedProfile, number>,
): Promise<void> {
  const asked = [...wanted].flatMap(([profile, { objects }]) =>
    large.has(profile) ? [{ profile, names: namesOf(objects), keys: keysOf(objects) }] : [],
  );
  const read = await readLargeAttributes(
    tx,
    asked.map(({ profile: { workspaceId, id }, names, keys }) => ({
      ...{ workspaceId, id },
      names: [...names],
      keys: [...keys],
    })),
  );
  const found = new ByWorkspace<LargeAttributes>();
  for (const row of read) found.set(row.workspaceId, row.id, row);
  for (const { profile, names, keys } of asked) {
    const { sizes, custom }: Partial<LargeAttributes> = found.get(profile.workspaceId, profile.id) ?? {};
    const sizeOf = (name: string) =>
      sizes && Object.hasOwn(sizes, name) ? storedNameBytes(name) + sizes[name]! : 0;
    profile.hold({
      names: keys,
      values: custom ?? {},
      bytes: large.get(profile)!,
      sizes: new Map([...names].map((name) => [name, sizeOf(name)])),
    });
  }
}

function wantedBy(items: WorkItem[], profiles: Profiles): Wanted {
  const wanted: Wanted = new Map();
  const want = (
    profile: LoadedProfile,
    { measured, isBlind = false, object }: Omit<Wish, 'profile'> & { isBlind?: boolean },
  ) => {
    const known = wanted.get(profile);
    if (!known) wanted.set(profile, { measured, isBlind, objects: object ? [object] : [] });
    else {
      known.measured ||= measured;
      known.isBlind &&= isBlind;
      if (object) known.objects.push(object);
    }
  };
  for (const item of items) {
    if (isActivity(item)) continue;
    if (isAboutOne(item)) {
      const profile = profiles.holder(item.workspaceId, item.object.identifier);
      const { object, lanes = 1 } = item;
      if (!profile) continue;
      want(profile, {
        measured: true,
        object,
        isBlind: lanes === 1 && profile.isLittle && overwrites(object),
      });
    } else for (const { profile, ...wish } of wantsOf(item, profiles)) want(profile, wish);
  }
  return wanted;
}

/** Whether what an object does to its user depends on nothing that is stored: neither values nor addresses. */
function overwrites({
  change,
  standard,
  email_subscribe,
  push_subscribe,
  subscription_groups,
  push_tokens,
}: AcceptedAttributes): boolean {
  if (change || email_subscribe || push_subscribe || subscription_groups || push_tokens) return false;
  if (!standard) return true;
  const { email, phone, marked_email_as_spam_at } = standard;
  return email === undefined && phone === undefined && marked_email_as_spam_at === undefined;
}

/**
 * Whether an object changes whoever has its identifier, who is one at most. So are nearly all that change anybody: nothing
 * else decides whom they mean.
 */
function isAboutOne(item: WorkItem): item is WorkItem<AcceptedAttributes & { identifier: Identifier }> {
  const { object } = item;
  return object.kind === 'attributes' && object.identifier !== undefined && !isAddress(object.identifier);
}

/** Whom one object needs locked. */
interface Wish {
  profile: LoadedProfile;
  measured: boolean;
  object?: AcceptedAttributes;
}

function* wantsOf(item: WorkItem, profiles: Profiles): Iterable<Wish> {
  const { workspaceId, object } = item;
  if (!isTrack(item)) {
    const measured = object.kind === 'merge' || object.kind === 'identify';
    // Of those who share an address one is meant, or nobody; a state belongs to the address itself.
    for (const identifier of namedIdentifiers(object))
      if (!isAddress(identifier))
        for (const profile of profiles.reachable(workspaceId, identifier)) yield { profile, measured };
    for (const profile of selectedBy(item, profiles)) yield { profile, measured };
  } else if (item.object.kind === 'attributes')
    for (const profile of changedBy(item, profiles)) yield { profile, measured: true, object: item.object };
}

/** Whom an attribute object changes. Who is meant by the address of many later on, a reload says. */
function changedBy({ workspaceId, object }: WorkItem, profiles: Profiles): Iterable<LoadedProfile> {
  if (object.kind !== 'attributes' || !object.identifier) return [];
  const { identifier } = object;
  const reachable = [...profiles.reachable(workspaceId, identifier)];
  if (!isAddress(identifier) || reachable.length <= FEW_HOLDERS) return reachable;
  if (profiles.isCrowded(workspaceId, identifier)) return [];
  const found = profiles.find(workspaceId, identifier);
  return typeof found === 'object' ? [found] : [];
}

const NO_NAMES: ReadonlySet<string> = new Set();

/** Attributes whose stored value the objects start from: none for most. */
function keysOf(objects: AcceptedAttributes[]): ReadonlySet<string> {
  let names: Set<string> | undefined;
  for (const { change } of objects) {
    if (!change) continue;
    names ??= new Set();
    for (const name of Object.keys(change)) names.add(name);
  }
  return names ?? NO_NAMES;
}

/** All that they name. */
function namesOf(objects: AcceptedAttributes[]): Set<string> {
  const names = new Set(keysOf(objects));
  for (const { set } of objects) if (set) for (const name of Object.keys(set)) names.add(name);
  return names;
}
