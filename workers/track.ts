import type { Connection } from '../src/store/database.ts';
import { findPushTokens } from '../src/store/profiles/find-push-tokens.ts';
import { findGroups, type Group } from '../src/store/subscriptions/find-groups.ts';
import { emptyChanges, fold } from './track/fold.ts';
import { loadProfiles } from './track/load.ts';
import { loadStates } from './track/load-states.ts';
import { scoped, type Work } from './track/work.ts';
import { writeChanges } from './track/write.ts';

/**
 * Applies accepted objects in their order: load whom they name, fold in memory, write whole sets.
 *
 * @param now the store's clock at the start of the batch
 * @returns the objects that cannot be applied, with the reason
 * @throws whatever the store says; then the transaction is spoilt
 */
export async function applyTrack(
  tx: Connection,
  works: Work[],
  now: Date,
): Promise<{ work: Work; reason: string }[]> {
  const refused: { work: Work; reason: string }[] = [];
  let rest = works;
  while (rest.length > 0) {
    const [profiles, groups, owned] = await Promise.all([
      loadProfiles(tx, rest, now.getTime()),
      loadGroups(tx, rest),
      loadOwnedTokens(tx, rest),
    ]);
    const changes = emptyChanges(profiles, groups, owned, await loadStates(tx, rest, profiles));
    const folded = fold(rest, changes);
    if (folded === 0) throw new Error('an identifier means nobody and too many at once');
    await writeChanges(tx, changes, now);
    refused.push(...changes.refused);
    rest = rest.slice(folded);
  }
  return refused;
}

async function loadGroups(tx: Connection, works: Work[]): Promise<Map<string, Group>> {
  const ids = new Set<string>();
  for (const { object } of works) {
    if (object.kind !== 'attributes') continue;
    for (const { subscription_group_id } of object.subscription_groups ?? []) ids.add(subscription_group_id);
  }
  if (ids.size === 0) return new Map();
  return new Map((await findGroups(tx, [...ids])).map((group) => [group.id, group]));
}

async function loadOwnedTokens(tx: Connection, works: Work[]): Promise<Set<string>> {
  const wanted: { workspaceId: string; app_id: string; token: string }[] = [];
  for (const { workspaceId, object } of works) {
    if (object.kind !== 'attributes' || object.identifier) continue;
    for (const token of object.push_tokens ?? []) wanted.push({ workspaceId, ...token });
  }
  if (wanted.length === 0) return new Set();
  const owned = await findPushTokens(
    tx,
    wanted.map(({ workspaceId }) => workspaceId),
    wanted.map(({ app_id }) => app_id),
    wanted.map(({ token }) => token),
  );
  return new Set(owned.map(({ workspaceId, appId, token }) => scoped(workspaceId, `${appId}\0${token}`)));
}
