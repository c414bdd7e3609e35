import type {
  AcceptedAliasNew,
  AcceptedAliasUpdate,
  AcceptedDelete,
  AcceptedRemove,
  AcceptedRename,
  IdentityObject,
} from '../../../src/jobs/payloads.ts';
import { MAX_ALIASES, MAX_DEPRECATED } from '../../../src/store/merges.ts';
import type { Changes, FoldedIdentity } from '../changes.ts';
import { pick, TooManyHolders } from '../profiles.ts';
import { RELOAD, type WorkItem } from '../work-item.ts';
import { foldIdentify, foldMerge } from './merge.ts';
import { losesPinned } from './states.ts';

/**
 * A taken alias stays whose it is, and a user keeps the alias that it has under a label. With an external id that
 * nobody has, nobody gets the alias.
 */
function foldAliasNew(
  { workspaceId, ordinal }: WorkItem,
  { user_alias, external_id }: AcceptedAliasNew,
  { profiles }: Changes,
): FoldedIdentity {
  const holder = profiles.find(workspaceId, { user_alias });
  if (holder === RELOAD) return RELOAD;
  if (external_id === undefined) {
    if (!holder) profiles.create(workspaceId, { user_alias }).touched = ordinal;
    return undefined;
  }
  const owner = profiles.find(workspaceId, { external_id });
  if (owner === RELOAD) return RELOAD;
  if (holder || !owner) return undefined;
  if (!owner.holds() || !owner.labels) return RELOAD;
  if (owner.labels.has(user_alias.alias_label)) return undefined;
  if (owner.labels.size >= MAX_ALIASES)
    return `the user has ${MAX_ALIASES} aliases, the most that one may have`;
  profiles.addAlias(owner, user_alias);
  return undefined;
}

/** Nothing happens when nobody has the old name, or somebody has the new one. */
function foldAliasUpdate(
  { workspaceId }: WorkItem,
  { alias_label, old_alias_name, new_alias_name }: AcceptedAliasUpdate,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const from = { user_alias: { alias_label, alias_name: old_alias_name } };
  const to = { user_alias: { alias_label, alias_name: new_alias_name } };
  const holder = profiles.find(workspaceId, from);
  const taken = profiles.find(workspaceId, to);
  if (holder === RELOAD || taken === RELOAD) return RELOAD;
  if (!holder || taken) return undefined;
  identity.renamedAliases.push({ workspace_id: workspaceId, alias_label, old_alias_name, new_alias_name });
  profiles.sealIdentifier(workspaceId, from);
  profiles.sealIdentifier(workspaceId, to);
  return undefined;
}

/** What waits for the identifier among the dead letters goes with it, even when nobody has it. */
function foldDelete(
  item: WorkItem,
  { user }: AcceptedDelete,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const found = pick(profiles, item.workspaceId, user);
  if (found === RELOAD || (found && (!found.holds() || losesPinned(found, { profiles })))) return RELOAD;
  identity.deletes.push(item);
  profiles.sealIdentifier(item.workspaceId, user.identifier);
  if (!found) return undefined;
  identity.deleted.push(found);
  profiles.seal(found);
  return undefined;
}

/** The user goes by the new id; the old one still resolves. */
function foldRename(
  { workspaceId, ordinal, object: { id: object_id } }: WorkItem,
  { current_external_id, new_external_id }: AcceptedRename,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const holder = profiles.find(workspaceId, { external_id: current_external_id });
  const taken = profiles.find(workspaceId, { external_id: new_external_id });
  if (holder === RELOAD || taken === RELOAD) return RELOAD;
  if (holder && (!holder.holds() || holder.deprecated === undefined)) return RELOAD;
  const error =
    holder?.externalId !== current_external_id
      ? `no user goes by the current_external_id '${current_external_id}'`
      : taken
        ? 'new_external_id is already in use'
        : holder.deprecated! >= MAX_DEPRECATED
          ? `the user has ${MAX_DEPRECATED} deprecated external ids, the most that one may have: remove some of them`
          : undefined;
  identity.outcomes.push({ object_id, ...(error !== undefined && { error }) });
  if (error !== undefined || !holder) return undefined;
  const { id } = holder;
  identity.externalIds.push({ workspace_id: workspaceId, id, external_id: new_external_id, ordinal });
  identity.deprecated.push({ workspace_id: workspaceId, external_id: current_external_id, profile_id: id });
  profiles.seal(holder);
  profiles.sealIdentifier(workspaceId, { external_id: new_external_id });
  return undefined;
}

/** Only an id that was renamed away can be removed; the user goes by the other. */
function foldRemove(
  { workspaceId, object: { id: object_id } }: WorkItem,
  { external_id }: AcceptedRemove,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const holder = profiles.find(workspaceId, { external_id });
  if (holder === RELOAD || (holder && !holder.holds())) return RELOAD;
  const error = !holder
    ? `no user has the external_id '${external_id}'`
    : holder.externalId === external_id
      ? `the external_id '${external_id}' is not deprecated: a user goes by it`
      : undefined;
  identity.outcomes.push({ object_id, ...(error !== undefined && { error }) });
  if (error !== undefined) return undefined;
  identity.undeprecated.push({ workspace_id: workspaceId, external_id });
  profiles.sealIdentifier(workspaceId, { external_id });
  return undefined;
}

/** Plays one identity operation, in memory. What it touches is sealed for the rest of the round. */
export function foldIdentity(item: WorkItem<IdentityObject>, changes: Changes): FoldedIdentity {
  try {
    return dispatch(item, changes);
  } catch (error) {
    if (error instanceof TooManyHolders) return error.message;
    throw error;
  }
}

function dispatch(item: WorkItem<IdentityObject>, changes: Changes): FoldedIdentity {
  const { object } = item;
  switch (object.kind) {
    case 'alias_new':
      return foldAliasNew(item, object, changes);
    case 'alias_update':
      return foldAliasUpdate(item, object, changes);
    case 'identify':
      return foldIdentify(item, object, changes);
    case 'merge':
      return foldMerge(item, object, changes);
    case 'delete':
      return foldDelete(item, object, changes);
    case 'external_id_rename':
      return foldRename(item, object, changes);
    case 'external_id_remove':
      return foldRemove(item, object, changes);
  }
}
