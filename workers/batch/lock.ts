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

/** Returns the profiles that the selectors of an identity operation may choose. */
function selectedBy({ workspaceId, object }: WorkItem, profiles: Profiles): LoadedProfile[] {
  return selectorsOf(object).flatMap((selector) => [...chosenBy(selector, workspaceId, profiles)]);
}

/** Returns the profiles that a selector may mean; for an address, at most one holder. */
export function chosenBy(
  selector: UserSelector,
  workspaceId: string,
  profiles: Profiles,
): Iterable<LoadedProfile> {
  const { identifier } = selector;
  if (!isAddress(identifier)) return profiles.reachable(workspaceId, identifier);
  if (profiles.isCrowded(workspaceId, identifier)) return [];
  const profile = pick(profiles, workspaceId, selector);
  return typeof profile === 'object' ? [profile] : [];
}

/** Profiles to lock, with the reason for each. */
type Wanted = Map<LoadedProfile, Want>;

interface Want {
  /** Attribute objects that may change it. */
  objects: AcceptedAttributes[];
  /** Whether the result depends on the size of its attributes. */
  measured: boolean;
  /** Whether the objects overwrite attributes without using stored values. */
  isBlind: boolean;
}

/**
 * If an address has at most this many holders, all of them are locked. Otherwise, only the holder that the address
 * means now is locked.
 */
const FEW_HOLDERS = 8;

/**
 * Bytes of stored custom attributes that one round loads: less than 100 ms of worker and Postgres time together, even
 * for the most expensive kind. No other batch gets a turn before the round is over.
 */
const ROUND_BYTES = 524_288;

/**
 * If rounds of `ROUND_BYTES` would load each user more than `AGAIN` times on average, they are made larger, up to
 * `MAX_ROUND_BYTES`.
 */
const AGAIN = 2;
const MAX_ROUND_BYTES = 8 * ROUND_BYTES;

/** Stored attributes of a profile that is only overwritten: their values are unknown, but they are small. */
const LITTLE = { names: new Set<string>(), values: {}, bytes: 0 };

/**
 * Locks the profiles that attribute objects and identity operations name, and reads the custom attributes that changes
 * need, for as many objects as fit into a round.
 *
 * With a single lane, no other lane changes the profiles of a workspace at the same time. A profile that is only
 * overwritten is then not locked here: the update locks its row, and fails if the row is gone. With several lanes, all
 * profiles are locked in a fixed order.
 *
 * @returns how many of the objects, from the first, can be folded in this round; undefined if a profile is gone because
 * another lane has merged or deleted it since it was found
 */
export async function lockChanged(
  tx: Connection,
  items: WorkItem[],
  profiles: Profiles,
): Promise<number | undefined> {
  const wanted = wantedBy(items, profiles);
  if (wanted.size === 0) return items.length;
  const targets: { profile: LoadedProfile; keys: ReadonlySet<string>; measured: boolean }[] = [];
  for (const [profile, { objects, measured, isBlind }] of wanted)
    if (isBlind) profile.hold(LITTLE);
    else targets.push({ profile, keys: keysOf(objects), measured });
  if (targets.length === 0) return items.length;
  const locked = await lockProfiles(tx, targets);
  const large = new Map<LoadedProfile, number>();
  for (const row of locked) {
    const { profile, keys } = targets[row.place - 1]!;
    profiles.refresh(profile, row);
    if (row.bytes !== null) large.set(profile, row.bytes);
    else profile.hold({ names: keys, values: row.custom ?? {}, bytes: 0 });
  }
  if (locked.length < targets.length) return undefined;
  for (const item of items)
    if (!isActivity(item) && !isAboutOne(item) && !isSelectionLocked(item, profiles, wanted))
      return undefined;
  if (large.size === 0) return items.length;
  const count = countOfRound(items, profiles, large);
  await holdLarge(tx, wantedBy(items.slice(0, count), profiles), large);
  return count;
}

/**
 * Returns whether all chosen profiles are locked. Another lane may have changed the choice before the locks were taken.
 */
function isSelectionLocked(item: WorkItem, profiles: Profiles, wanted: Wanted): boolean {
  return [...selectedBy(item, profiles), ...changedBy(item, profiles)].every((profile) =>
    wanted.has(profile),
  );
}

/**
 * Returns how many objects fit into a round; at least one. If small rounds would load the same users again and again,
 * the rounds are made larger, since each load of a user costs the same.
 */
function countOfRound(
  items: WorkItem[],
  profiles: Profiles,
  large: ReadonlyMap<LoadedProfile, number>,
): number {
  const total = sum(large.values());
  // An object can name a user by several identifiers, or twice, for example to merge a user with itself.
  const about = items.map((item) => [
    ...new Set([...wantsOf(item, profiles)].flatMap(({ profile }) => (large.has(profile) ? [profile] : []))),
  ]);
  for (let maxBytes = ROUND_BYTES; ; maxBytes *= 2) {
    const rounds = roundsOf(about, large, maxBytes);
    if (
      rounds.length === 1 ||
      maxBytes >= MAX_ROUND_BYTES ||
      sum(rounds.map(({ bytes }) => bytes)) <= AGAIN * total
    )
      return rounds[0]!.count;
  }
}

/** Splits objects into rounds of at most `maxBytes` bytes; each object is given by the large profiles that it concerns. */
function roundsOf(
  about: LoadedProfile[][],
  large: ReadonlyMap<LoadedProfile, number>,
  maxBytes: number,
): { count: number; bytes: number }[] {
  const rounds = [{ count: 0, bytes: 0 }];
  let inHand = new Set<LoadedProfile>();
  for (const profiles of about) {
    let round = rounds.at(-1)!;
    const fresh = profiles.filter((profile) => !inHand.has(profile));
    const bytes = sum(fresh.map((profile) => large.get(profile)!));
    if (round.count > 0 && bytes > 0 && round.bytes + bytes > maxBytes) {
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
  const targets = [...wanted].flatMap(([profile, { objects }]) =>
    large.has(profile) ? [{ profile, names: namesOf(objects), keys: keysOf(objects) }] : [],
  );
  const read = await readLargeAttributes(
    tx,
    targets.map(({ profile: { workspaceId, id }, names, keys }) => ({
      ...{ workspaceId, id },
      names: [...names],
      keys: [...keys],
    })),
  );
  const largeAttributes = new ByWorkspace<LargeAttributes>();
  for (const row of read) largeAttributes.set(row.workspaceId, row.id, row);
  for (const { profile, names, keys } of targets) {
    const { sizes, custom }: Partial<LargeAttributes> =
      largeAttributes.get(profile.workspaceId, profile.id) ?? {};
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
    const existing = wanted.get(profile);
    if (!existing) wanted.set(profile, { measured, isBlind, objects: object ? [object] : [] });
    else {
      existing.measured ||= measured;
      existing.isBlind &&= isBlind;
      if (object) existing.objects.push(object);
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

/** Returns whether the effect of an object is independent of stored values and addresses. */
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
 * Returns whether an object changes the only possible holder of its identifier, which is not an address. Nearly all
 * attribute objects are of this kind.
 */
function isAboutOne(item: WorkItem): item is WorkItem<AcceptedAttributes & { identifier: Identifier }> {
  const { object } = item;
  return object.kind === 'attributes' && object.identifier !== undefined && !isAddress(object.identifier);
}

/** A profile that one object needs locked. */
interface Wish {
  profile: LoadedProfile;
  measured: boolean;
  object?: AcceptedAttributes;
}

function* wantsOf(item: WorkItem, profiles: Profiles): Iterable<Wish> {
  const { workspaceId, object } = item;
  if (!isTrack(item)) {
    const measured = object.kind === 'merge' || object.kind === 'identify';
    // An address means at most one holder (`selectedBy`), and a subscription state belongs to the address itself.
    for (const identifier of namedIdentifiers(object))
      if (!isAddress(identifier))
        for (const profile of profiles.reachable(workspaceId, identifier)) yield { profile, measured };
    for (const profile of selectedBy(item, profiles)) yield { profile, measured };
  } else if (item.object.kind === 'attributes')
    for (const profile of changedBy(item, profiles)) yield { profile, measured: true, object: item.object };
}

/** Returns the profiles that an attribute object may change. With many holders, a later holder needs a reload. */
function changedBy({ workspaceId, object }: WorkItem, profiles: Profiles): Iterable<LoadedProfile> {
  if (object.kind !== 'attributes' || !object.identifier) return [];
  const { identifier } = object;
  const reachable = [...profiles.reachable(workspaceId, identifier)];
  if (!isAddress(identifier) || reachable.length <= FEW_HOLDERS) return reachable;
  if (profiles.isCrowded(workspaceId, identifier)) return [];
  const profile = profiles.find(workspaceId, identifier);
  return typeof profile === 'object' ? [profile] : [];
}

const NO_NAMES: ReadonlySet<string> = new Set();

/** Returns the names of the attributes whose stored values the objects change; empty for most objects. */
function keysOf(objects: AcceptedAttributes[]): ReadonlySet<string> {
  let names: Set<string> | undefined;
  for (const { change } of objects) {
    if (!change) continue;
    names ??= new Set();
    for (const name of Object.keys(change)) names.add(name);
  }
  return names ?? NO_NAMES;
}

/** Returns the names of all attributes that the objects set or change. */
function namesOf(objects: AcceptedAttributes[]): Set<string> {
  const names = new Set(keysOf(objects));
  for (const { set } of objects) if (set) for (const name of Object.keys(set)) names.add(name);
  return names;
}
