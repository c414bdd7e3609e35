import type { Connection } from '../../src/store/database.ts';
import { findAliasLabels } from '../../src/store/profiles/find-alias-labels.ts';
import type { HeldProfile } from './held-profile.ts';
import type { Profiles } from './profiles.ts';
import type { Work } from './work.ts';

/** Looks up under which labels the profiles have aliases that an operation may give another one. */
export async function loadLabels(tx: Connection, works: Work[], profiles: Profiles): Promise<void> {
  const wanted = new Set<HeldProfile>();
  for (const { workspaceId, object } of works) {
    if (object.kind !== 'alias_new' && object.kind !== 'identify') continue;
    const { external_id } = object;
    if (external_id === undefined) continue;
    for (const profile of profiles.reachable(workspaceId, { external_id })) wanted.add(profile);
  }
  if (wanted.size === 0) return;
  for (const profile of wanted) profile.labels ??= new Set();
  const keys = [...wanted].map(({ workspaceId, id }) => ({ workspace_id: workspaceId, id }));
  for (const { workspaceId, id, label } of await findAliasLabels(tx, keys)) {
    profiles.get(workspaceId, id)!.labels!.add(label);
  }
}
