import type { AcceptedAliasNew, AcceptedIdentify, AcceptedObject } from '../../src/jobs/envelope.ts';
import { countDeprecated, findAliasLabels } from '../../src/store/alternate-identifiers.ts';
import type { Connection } from '../../src/store/database.ts';
import { findCrowdedEmails } from '../../src/store/email-addresses.ts';
import { findPushTokens } from '../../src/store/profile-attributes.ts';
import type { StreamEntries } from '../../src/store/stream-log.ts';
import { findGroups, type Group } from '../../src/store/subscription-states.ts';
import { answersTo } from '../../src/store/transactions.ts';
import { ByWorkspace } from './by-workspace.ts';
import { type Changes, emptyChanges, tokenKey } from './changes.ts';
import type { RefusedObject } from './failures.ts';
import { fold } from './fold/fold.ts';
import { loadProfiles } from './load-profiles.ts';
import { loadStates } from './load-states.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import type { Profiles } from './profiles.ts';
import { joinEntries, toStreamEntries, type Written } from './stream-entries.ts';
import type { WorkItem } from './work-item.ts';
import { writeChanges } from './write.ts';

/**
 * Minimum number of objects in the round after a cut round. It is small, because the data of objects that do not fit
 * into the round has to be loaded again.
 */
const SMALL_ROUND = 2;

/**
 * Minimum fold time of a round, also after the time of the batch is over: `MIN_FOLD_MS` milliseconds, or `FOLD_TIMES`
 * times its load time if that is longer. If a round is cut earlier, most of its loaded data has to be loaded again.
 */
const MIN_FOLD_MS = 300;
const FOLD_TIMES = 3;

export interface Applied {
  /** Number of objects that took effect or were refused. They are the first ones of the list. */
  count: number;
  /** Objects that could not be applied; their dead letters are written. */
  refused: RefusedObject[];
  /** Number of objects that the next round would load. */
  size: number;
  /** Bytes of stored attributes that were loaded, by workspace. */
  loaded: Map<string, number>;
  /** Whether the objects contained merges or deletes, which may leave cleanup work outside the lanes. */
  leavesTombstones: boolean;
  /** Objects whose user has a primary identifier that belongs to another lane. */
  namedElsewhere: WorkItem[];
  /** Entries for the stream log. */
  entries: StreamEntries[];
}

/** Joins the results of several rounds or parts, in order. */
export function joinApplied(all: readonly Applied[]): Applied {
  return {
    count: all.reduce((sum, { count }) => sum + count, 0),
    size: all.at(-1)?.size ?? SMALL_ROUND,
    loaded: sumOf(all.map(({ loaded }) => loaded)),
    refused: all.flatMap(({ refused }) => refused),
    leavesTombstones: all.some(({ leavesTombstones }) => leavesTombstones),
    namedElsewhere: all.flatMap(({ namedElsewhere }) => namedElsewhere),
    entries: joinEntries(all.map(({ entries }) => entries)),
  };
}

function sumOf(all: readonly Map<string, number>[]): Map<string, number> {
  if (all.length === 1) return all[0]!;
  const sum = new Map<string, number>();
  for (const one of all) for (const [key, number] of one) sum.set(key, (sum.get(key) ?? 0) + number);
  return sum;
}

/** Reasons by object id for objects that must not be applied: they become dead letters, at their place in the order. */
export type Poison = ReadonlyMap<string, string>;

export const NO_POISON: Poison = new Map();

/** How objects are applied. */
export interface Terms {
  /** Postgres time at the start of the batch, ISO 8601 with microseconds. */
  now: string;
  /** Deadline by `performance.now()`: after it, only a first round starts, and a running round is cut. */
  until: number;
  /** Number of objects in the first round; all by default. */
  size?: number;
  poison: Poison;
  /** Workspaces whose changes go into the stream log; empty by default. */
  streamed?: ReadonlySet<string>;
}

/** Creates stream log entries while Postgres works, unless the changed states have to be read from its reply first. */
async function logged(written: Written, { streamed }: Terms): Promise<StreamEntries[]> {
  if (!streamed || streamed.size === 0) return [];
  const states = written.changes.states.changes.length > 0 ? await written.stored : [];
  return toStreamEntries({ ...written, states }, streamed);
}

/**
 * Applies accepted objects in order, in rounds. A round loads the users that the objects name, folds the objects in
 * memory and writes whole sets. It ends before an object that needs a reload, when its time is over, or before it would
 * load too much. Most batches are one round.
 *
 * @throws any error of Postgres; the transaction can then only be rolled back
 */
export async function applySome(tx: Connection, items: WorkItem[], terms: Terms): Promise<Applied> {
  const rounds: Applied[] = [];
  let count = 0;
  let size = Math.min(items.length, terms.size ?? items.length);
  while (count < items.length && (count === 0 || performance.now() < terms.until)) {
    const wanted = count === 0 && size === items.length ? items : items.slice(count, count + size);
    const round = await applyRound(tx, wanted, terms);
    rounds.push(round);
    count += round.count;
    size = round.count < wanted.length ? round.size : size * 4;
  }
  return { ...joinApplied(rounds), size };
}

/** Applies as many of the objects as fit into one round. */
async function applyRound(tx: Connection, wanted: WorkItem[], terms: Terms): Promise<Applied> {
  const { poison, until, now } = terms;
  const began = performance.now();
  const { changes, round } = await load(tx, wanted, terms);
  const loaded = performance.now();
  const minUntil = loaded + Math.max(MIN_FOLD_MS, FOLD_TIMES * (loaded - began));
  const folded = await fold(round, changes, { poison, until: Math.max(until, minUntil) });
  // This is a bug in Penstock. The error turns the object into a dead letter, so that its lane can continue.
  if (folded === 0)
    throw new TypeError(
      'fault in Penstock: the object could not be applied, because each load needs another one; report it',
    );
  const sent = writeChanges(tx, changes, now);
  const written = { ...sent, changes, round: round.slice(0, folded) };
  const [, entries] = await answersTo([sent.stored, logged(written, terms)]);
  const { refused, namedElsewhere, identity } = changes;
  return {
    ...{ count: folded, size: Math.max(SMALL_ROUND, folded * 2), refused, namedElsewhere, entries },
    loaded: bytesLoaded(changes.profiles),
    leavesTombstones: identity.merges.length + identity.deletes.length > 0,
  };
}

/** Returns the bytes of stored attributes of large profiles that a round has loaded, by workspace. */
function bytesLoaded(profiles: Profiles): Map<string, number> {
  const loaded = new Map<string, number>();
  for (const { workspaceId, storedBytes } of profiles.all())
    if (storedBytes > 0) loaded.set(workspaceId, (loaded.get(workspaceId) ?? 0) + storedBytes);
  return loaded;
}

/**
 * Reads all data that is needed to fold the objects of a round, and locks the profiles that they change.
 *
 * @returns the data as empty changes, and the objects, from the first, that fit into the round
 */
async function load(
  tx: Connection,
  wanted: WorkItem[],
  { now, poison }: { now: string; poison: ReadonlyMap<string, string> },
): Promise<{ changes: Changes; round: WorkItem[] }> {
  // A poison object may contain identifiers that Postgres rejects, so they are not looked up.
  const isSound = ({ object }: WorkItem) => !poison.has(object.id);
  const sound = poison.size === 0 ? wanted : wanted.filter(isSound);
  const [{ profiles, count }, groups, ownedTokens, crowdedEmails] = await answersTo([
    loadProfiles(tx, sound, Date.parse(now)),
    loadGroups(tx, sound),
    loadOwnedTokens(tx, sound),
    loadCrowdedEmails(tx, sound),
  ]);
  const next = sound[count];
  const round = next
    ? wanted.slice(
        0,
        wanted.findIndex(({ ordinal }) => ordinal === next.ordinal),
      )
    : wanted;
  const items = next ? sound.slice(0, count) : sound;
  for (const { profile, labels } of await loadLabels(tx, items, profiles)) profile.knowLabels(labels);
  for (const { profile, number } of await loadDeprecated(tx, items, profiles)) profile.knowDeprecated(number);
  const states = await loadStates(tx, items, profiles);
  return { changes: emptyChanges({ profiles, groups, ownedTokens, states, crowdedEmails }), round };
}

async function loadGroups(tx: Connection, items: WorkItem[]): Promise<Map<string, Group>> {
  const ids = new Set<string>();
  for (const { object } of items) {
    if (object.kind === 'group_state') ids.add(object.subscription_group_id);
    if (object.kind !== 'attributes') continue;
    for (const { subscription_group_id } of object.subscription_groups ?? []) ids.add(subscription_group_id);
  }
  if (ids.size === 0) return new Map();
  return new Map((await findGroups(tx, [...ids])).map((group) => [group.id, group]));
}

async function loadCrowdedEmails(tx: Connection, items: WorkItem[]): Promise<ByWorkspace<true>> {
  const wanted = new ByWorkspace<{ workspaceId: string; email: string }>();
  for (const { workspaceId, object } of items) {
    if (object.kind !== 'email_change' || object.marked_as_spam === undefined) continue;
    const { email } = object;
    wanted.set(workspaceId, email, { workspaceId, email });
  }
  const sound = [...wanted.values()];
  const crowdedEmails = new ByWorkspace<true>();
  if (sound.length === 0) return crowdedEmails;
  const crowded = await findCrowdedEmails(
    tx,
    sound.map(({ workspaceId }) => workspaceId),
    sound.map(({ email }) => email),
  );
  for (const { workspaceId, email } of crowded) crowdedEmails.set(workspaceId, email, true);
  return crowdedEmails;
}

async function loadOwnedTokens(tx: Connection, items: WorkItem[]): Promise<ByWorkspace<true>> {
  const wanted: { workspaceId: string; appId: string; token: string }[] = [];
  for (const { workspaceId, object } of items) {
    if (object.kind !== 'attributes' || object.identifier) continue;
    for (const { app_id: appId, token } of object.push_tokens ?? [])
      wanted.push({ workspaceId, appId, token });
  }
  const owned = new ByWorkspace<true>();
  if (wanted.length === 0) return owned;
  for (const token of await findPushTokens(tx, wanted)) owned.set(token.workspaceId, tokenKey(token), true);
  return owned;
}

/** Reads the alias labels of the profiles whose operations depend on them. */
async function loadLabels(
  tx: Connection,
  items: WorkItem[],
  profiles: Profiles,
): Promise<{ profile: LoadedProfile; labels: string[] }[]> {
  const wanted = new Set<LoadedProfile>();
  for (const { workspaceId, object } of items) {
    const external_id = needsLabels(object) ? object.external_id : undefined;
    if (external_id === undefined) continue;
    for (const profile of profiles.reachable(workspaceId, { external_id })) wanted.add(profile);
  }
  if (wanted.size === 0) return [];
  const rows = await findAliasLabels(tx, [...wanted]);
  const labels = new Map([...wanted].map((profile) => [profile, [] as string[]]));
  for (const { workspaceId, id, label } of rows) labels.get(profiles.get(workspaceId, id)!)!.push(label);
  return [...labels].map(([profile, its]) => ({ profile, labels: its }));
}

function needsLabels(object: AcceptedObject): object is AcceptedAliasNew | AcceptedIdentify {
  return object.kind === 'alias_new' || (object.kind === 'identify' && object.keeps_labels === true);
}

/** Counts the deprecated external ids of the profiles that an operation may rename. */
async function loadDeprecated(
  tx: Connection,
  items: WorkItem[],
  profiles: Profiles,
): Promise<{ profile: LoadedProfile; number: number }[]> {
  const wanted = new Set<LoadedProfile>();
  for (const { workspaceId, object } of items) {
    if (object.kind !== 'external_id_rename') continue;
    const external_id = object.current_external_id;
    for (const profile of profiles.reachable(workspaceId, { external_id })) wanted.add(profile);
  }
  if (wanted.size === 0) return [];
  const counts = await countDeprecated(tx, [...wanted]);
  return counts.map(({ workspaceId, id, number }) => ({ profile: profiles.get(workspaceId, id)!, number }));
}
