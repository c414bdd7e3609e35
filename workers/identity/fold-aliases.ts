import type { AcceptedAliasNew, AcceptedAliasUpdate } from '../../src/jobs/identity.ts';
import type { Changes } from '../track/fold.ts';
import { LOOK_AGAIN } from '../track/profiles.ts';
import type { Work } from '../track/work.ts';
import type { FoldedIdentity } from './fold-identity.ts';

/**
 * A taken alias stays whose it is, and a user keeps the alias that it has under a label. With an external id that
 * nobody has, nobody gets the alias.
 */
export function foldAliasNew(
  { workspaceId, ordinal }: Work,
  { user_alias, external_id }: AcceptedAliasNew,
  { profiles }: Changes,
): FoldedIdentity {
  const holder = profiles.find(workspaceId, { user_alias });
  if (holder === LOOK_AGAIN) return LOOK_AGAIN;
  if (external_id === undefined) {
    if (!holder) profiles.create(workspaceId, { user_alias }).touched = ordinal;
    return undefined;
  }
  const owner = profiles.find(workspaceId, { external_id });
  if (owner === LOOK_AGAIN) return LOOK_AGAIN;
  if (holder || !owner) return undefined;
  if (!owner.holds() || !owner.labels) return LOOK_AGAIN;
  if (!owner.labels.has(user_alias.alias_label)) profiles.addAlias(owner, user_alias);
  return undefined;
}

/** Nothing happens when nobody has the old name, or somebody has the new one. */
export function foldAliasUpdate(
  { workspaceId }: Work,
  { alias_label, old_alias_name, new_alias_name }: AcceptedAliasUpdate,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const from = { user_alias: { alias_label, alias_name: old_alias_name } };
  const to = { user_alias: { alias_label, alias_name: new_alias_name } };
  const holder = profiles.find(workspaceId, from);
  const taken = profiles.find(workspaceId, to);
  if (holder === LOOK_AGAIN || taken === LOOK_AGAIN) return LOOK_AGAIN;
  if (!holder || taken) return undefined;
  identity.renamedAliases.push({ workspace_id: workspaceId, alias_label, old_alias_name, new_alias_name });
  profiles.sealIdentifier(workspaceId, from);
  profiles.sealIdentifier(workspaceId, to);
  return undefined;
}
