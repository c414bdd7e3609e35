import type { Connection } from '../../src/store/database.ts';
import { findCrowdedEmails } from '../../src/store/email-addresses.ts';
import { findPushTokens } from '../../src/store/push-tokens.ts';
import { findGroups, type Group } from '../../src/store/subscription-states.ts';
import { type Changes, emptyChanges } from './changes.ts';
import { loadDeprecated, loadLabels, loadProfiles } from './load-profiles.ts';
import { loadStates } from './load-states.ts';
import { scoped, type WorkItem } from './work-item.ts';

/**
 * Reads everything that the objects of a round need to be folded, and locks whom they change.
 *
 * @returns beside it those of the objects, from the first, that one round may be about
 */
export async function load(
  tx: Connection,
  wanted: WorkItem[],
  { now, poison }: { now: string; poison: ReadonlyMap<string, string> },
): Promise<{ changes: Changes; round: WorkItem[] }> {
  // What a poison object names may be what no statement takes.
  const isSound = ({ object }: WorkItem) => !poison.has(object.id);
  const asked = poison.size === 0 ? wanted : wanted.filter(isSound);
  const [{ profiles, count }, groups, ownedTokens, crowdedEmails] = await Promise.all([
    loadProfiles(tx, asked, Date.parse(now)),
    loadGroups(tx, asked),
    loadOwnedTokens(tx, asked),
    loadCrowdedEmails(tx, asked),
  ]);
  const next = asked[count];
  const round = next
    ? wanted.slice(
        0,
        wanted.findIndex(({ ordinal }) => ordinal === next.ordinal),
      )
    : wanted;
  const items = next ? asked.slice(0, count) : asked;
  await loadLabels(tx, items, profiles);
  await loadDeprecated(tx, items, profiles);
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

async function loadCrowdedEmails(tx: Connection, items: WorkItem[]): Promise<Set<string>> {
  const wanted = new Map<string, { workspaceId: string; email: string }>();
  for (const { workspaceId, object } of items) {
    if (object.kind !== 'email_change' || object.marked_as_spam === undefined) continue;
    const { email } = object;
    wanted.set(scoped(workspaceId, email), { workspaceId, email });
  }
  if (wanted.size === 0) return new Set();
  const crowded = await findCrowdedEmails(
    tx,
    [...wanted.values()].map(({ workspaceId }) => workspaceId),
    [...wanted.values()].map(({ email }) => email),
  );
  return new Set(crowded.map(({ workspaceId, email }) => scoped(workspaceId, email)));
}

async function loadOwnedTokens(tx: Connection, items: WorkItem[]): Promise<Set<string>> {
  const wanted: { workspaceId: string; app_id: string; token: string }[] = [];
  for (const { workspaceId, object } of items) {
    if (object.kind !== 'attributes' || object.identifier) continue;
    for (const token of object.push_tokens ?? []) wanted.push({ workspaceId, ...token });
  }
  if (wanted.length === 0) return new Set();
  const owned = await findPushTokens(tx, wanted);
  return new Set(owned.map(({ workspaceId, appId, token }) => scoped(workspaceId, `${appId}\0${token}`)));
}
