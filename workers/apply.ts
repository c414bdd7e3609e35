import type { Connection } from '../src/store/database.ts';
import { findPushTokens } from '../src/store/profiles/find-push-tokens.ts';
import { findGroups, type Group } from '../src/store/subscriptions/find-groups.ts';
import type { Refused } from './refused.ts';
import { emptyChanges, fold } from './track/fold.ts';
import { loadProfiles } from './track/load.ts';
import { loadLabels } from './track/load-labels.ts';
import { loadStates } from './track/load-states.ts';
import { scoped, type Work } from './track/work.ts';
import { writeChanges } from './track/write.ts';

/** Objects of the first round after one that ended early: few, since the next may end as soon. */
const SMALL_ROUND = 64;

export interface Applied {
  /** Those that could not be applied; their dead letters are written. */
  refused: Refused[];
  /** Whether profiles were merged or deleted. */
  removed: boolean;
}

/**
 * Applies accepted objects in their order, in rounds: load whom they name, fold in memory, write whole sets. A
 * round ends where an object needs what an earlier one has changed in the store; most batches are one round.
 *
 * @param now the store's clock at the start of the batch
 * @throws whatever the store says; then the transaction is spoilt
 */
export async function applyObjects(tx: Connection, works: Work[], now: Date): Promise<Applied> {
  const applied: Applied = { refused: [], removed: false };
  let size = works.length;
  for (let start = 0; start < works.length; ) {
    const round = start === 0 && size === works.length ? works : works.slice(start, start + size);
    const [profiles, groups, owned] = await Promise.all([
      loadProfiles(tx, round, now.getTime()),
      loadGroups(tx, round),
      loadOwnedTokens(tx, round),
    ]);
    await loadLabels(tx, round, profiles);
    const changes = emptyChanges(profiles, groups, owned, await loadStates(tx, round, profiles));
    const folded = fold(round, changes);
    // A mistake of ours: the object becomes a dead letter, and its lane goes on.
    if (folded === 0) throw new TypeError('the object needs another look at the store after each look');
    await writeChanges(tx, changes, now);
    applied.refused.push(...changes.refused);
    applied.removed ||= changes.identity.merges.length + changes.identity.deleted.length > 0;
    start += folded;
    size = folded < round.length ? Math.max(SMALL_ROUND, folded * 2) : size * 4;
  }
  return applied;
}

async function loadGroups(tx: Connection, works: Work[]): Promise<Map<string, Group>> {
  const ids = new Set<string>();
  for (const { object } of works) {
    if (object.kind === 'group_state') ids.add(object.subscription_group_id);
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
