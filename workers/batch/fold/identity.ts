import type {
  AcceptedAliasNew,
  AcceptedAliasUpdate,
  AcceptedDelete,
  AcceptedIdentify,
  AcceptedMerge,
  AcceptedRemove,
  AcceptedRename,
  IdentityObject,
} from '../../../src/jobs/envelope.ts';
import { MAX_CUSTOM_BYTES } from '../../../src/profile/custom-values.ts';
import { removeRefusals, renameRefusals } from '../../../src/store/external-id-refusals.ts';
import { MAX_ALIASES, MAX_DEPRECATED } from '../../../src/store/merges.ts';
import type { Changes, FoldedIdentity } from '../changes.ts';
import type { LoadedProfile } from '../loaded-profile.ts';
import { pick, TooManyHolders } from '../profiles.ts';
import { RELOAD, type WorkItem } from '../work-item.ts';
import { canMove, losesPinned, meetsSealed, moveEmail, movePhone } from './states.ts';

/** Folds one identity operation. Profiles and identifiers that it changes are sealed for the rest of the round. */
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

/**
 * Adds an alias. It has no effect if the alias is taken, if the user already has an alias with the label, or if the
 * external id matches no user. Without an external id, an unused alias creates a user.
 */
function foldAliasNew(
  { workspaceId, ordinal }: WorkItem,
  { user_alias, external_id }: AcceptedAliasNew,
  { profiles }: Changes,
): FoldedIdentity {
  const holder = profiles.find(workspaceId, { user_alias });
  if (holder === RELOAD) return RELOAD;
  if (external_id === undefined) {
    if (!holder) profiles.create(workspaceId, { user_alias }).touch(ordinal);
    return undefined;
  }
  const owner = profiles.find(workspaceId, { external_id });
  if (owner === RELOAD) return RELOAD;
  if (holder || !owner) return undefined;
  if (!owner.isLockedFor() || !owner.labels) return RELOAD;
  if (owner.labels.has(user_alias.alias_label)) return undefined;
  if (owner.labels.size >= MAX_ALIASES)
    return `the user has ${MAX_ALIASES} aliases, the most that one may have`;
  profiles.addAlias(owner, user_alias);
  return undefined;
}

/** Renames an alias. It has no effect if the old name matches no user or the new name is taken. */
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
  identity.renamedAliases.push({
    workspaceId,
    aliasLabel: alias_label,
    oldAliasName: old_alias_name,
    newAliasName: new_alias_name,
    profileId: holder.id,
  });
  profiles.sealIdentifier(workspaceId, from);
  profiles.sealIdentifier(workspaceId, to);
  return undefined;
}

/** Deletes a user. The dead letters of the identifier are deleted too, even if it matches no user. */
function foldDelete(
  item: WorkItem,
  { user }: AcceptedDelete,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const profile = pick(profiles, item.workspaceId, user);
  if (profile === RELOAD || (profile && (!profile.isLockedFor() || losesPinned(profile, { profiles }))))
    return RELOAD;
  identity.deletes.push(item);
  profiles.sealIdentifier(item.workspaceId, user.identifier);
  if (!profile) return undefined;
  identity.deleted.push(profile);
  profiles.seal(profile);
  return undefined;
}

/** Renames an external id. The old id becomes deprecated and still resolves to the user. */
function foldRename(
  { workspaceId, ordinal, object: { id: objectId } }: WorkItem,
  rename: AcceptedRename,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const { current_external_id, new_external_id } = rename;
  const holder = profiles.find(workspaceId, { external_id: current_external_id });
  const taken = profiles.find(workspaceId, { external_id: new_external_id });
  if (holder === RELOAD || taken === RELOAD) return RELOAD;
  if (holder && (!holder.isLockedFor() || holder.deprecated === undefined)) return RELOAD;
  const broken =
    holder?.externalId !== current_external_id
      ? 'unknownUser'
      : taken
        ? 'inUse'
        : holder.deprecated! >= MAX_DEPRECATED
          ? 'tooManyDeprecated'
          : undefined;
  const { error } = broken === undefined ? {} : renameRefusals[broken](rename);
  identity.outcomes.push({ workspaceId, objectId, ...(error !== undefined && { error }) });
  if (error !== undefined || !holder) return undefined;
  const { id } = holder;
  identity.externalIds.push({ workspaceId, id, externalId: new_external_id, ordinal });
  identity.deprecated.push({ workspaceId, externalId: current_external_id, profileId: id });
  profiles.seal(holder);
  profiles.sealIdentifier(workspaceId, { external_id: new_external_id });
  return undefined;
}

/** Removes a deprecated external id. The current external id of a user cannot be removed. */
function foldRemove(
  { workspaceId, object: { id: objectId } }: WorkItem,
  remove: AcceptedRemove,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const { external_id } = remove;
  const holder = profiles.find(workspaceId, { external_id });
  if (holder === RELOAD || (holder && !holder.isLockedFor())) return RELOAD;
  const broken = !holder ? 'unknownUser' : holder.externalId === external_id ? 'notDeprecated' : undefined;
  const { error } = broken === undefined ? {} : removeRefusals[broken](remove);
  identity.outcomes.push({ workspaceId, objectId, ...(error !== undefined && { error }) });
  if (error !== undefined) return undefined;
  identity.undeprecated.push({ workspaceId, externalId: external_id, profileId: holder!.id });
  profiles.sealIdentifier(workspaceId, { external_id });
  return undefined;
}

/** Maximum stored bytes of the custom attributes of two merged users together: twice the limit of one user. */
const MAX_MERGED_BYTES = 2 * MAX_CUSTOM_BYTES;

/**
 * Merges two users. It has no effect unless each side matches exactly one user and the two differ. It also has no
 * effect if both users have an invalid phone number.
 */
function foldMerge(item: WorkItem, { merge, keep }: AcceptedMerge, changes: Changes): FoldedIdentity {
  const merged = pick(changes.profiles, item.workspaceId, merge);
  const kept = pick(changes.profiles, item.workspaceId, keep);
  if (merged === RELOAD || kept === RELOAD) return RELOAD;
  if (!merged || !kept || merged === kept) return undefined;
  if (!merged.isLockedFor() || !kept.isLockedFor()) return RELOAD;
  if (hasInvalidPhone(merged) && hasInvalidPhone(kept)) return undefined;
  return combine({ merged, kept }, item, changes);
}

function hasInvalidPhone({ phone, phoneValid }: LoadedProfile): boolean {
  return phone !== null && !phoneValid;
}

/**
 * Identifies a user that has no external id: gives it the external id, or merges it into the user with that external
 * id. If both have an alias with the same label, the alias of the kept user stays and the other alias no longer matches
 * any user. With `keeps_labels`, the object then has no effect. A user that already has an external id is not changed.
 */
function foldIdentify(
  item: WorkItem,
  { user, external_id, keeps_labels }: AcceptedIdentify,
  changes: Changes,
): FoldedIdentity {
  const { workspaceId, ordinal } = item;
  const { profiles, identity } = changes;
  const profile = pick(profiles, workspaceId, user);
  const owner = profiles.find(workspaceId, { external_id });
  if (profile === RELOAD || owner === RELOAD) return RELOAD;
  if (profile && !profile.isLockedFor()) return RELOAD;
  if (!profile || profile.externalId !== null || profile === owner) return undefined;
  if (owner && keeps_labels && 'user_alias' in user.identifier) {
    if (!owner.isLockedFor() || !owner.labels) return RELOAD;
    if (owner.labels.has(user.identifier.user_alias.alias_label)) return undefined;
  }
  if (owner) return combine({ merged: profile, kept: owner }, item, changes);
  identity.externalIds.push({ workspaceId, id: profile.id, externalId: external_id, ordinal });
  profiles.seal(profile);
  profiles.sealIdentifier(workspaceId, { external_id });
  return undefined;
}

/** Merges two profiles. Addresses and their states are moved in memory; statements in Postgres move all other data. */
function combine(
  { merged, kept }: { merged: LoadedProfile; kept: LoadedProfile },
  { ordinal, requestId }: WorkItem,
  changes: Changes,
): FoldedIdentity {
  if (!merged.isLockedFor() || !kept.isLockedFor()) return RELOAD;
  const { profiles, identity } = changes;
  // The merged profile loses its addresses, whether or not the kept profile gets them.
  if (
    meetsSealed({ workspaceId: merged.workspaceId, profile: merged }, { email: null, phone: null }, changes)
  )
    return RELOAD;
  if (merged.custom.bytes + kept.custom.bytes > MAX_MERGED_BYTES) {
    return `the custom attributes of both users take more than ${MAX_MERGED_BYTES} bytes as stored`;
  }
  const email = kept.email === null ? merged.email : null;
  const phone = kept.phone === null ? merged.phone : null;
  const moving = {
    ...(email !== null && { email }),
    ...(phone !== null && { phone, phone_valid: merged.phoneValid }),
  };
  if (!canMove(kept, moving, changes)) return RELOAD;
  kept.change(ordinal);
  if (email !== null) moveEmail(kept, { email, requestId }, changes);
  if (phone !== null) movePhone(kept, { phone, phoneValid: merged.phoneValid, requestId }, changes);
  identity.merges.push({
    workspaceId: kept.workspaceId,
    mergedId: merged.id,
    keptId: kept.id,
    requestId,
  });
  profiles.seal(merged);
  profiles.seal(kept);
  return undefined;
}
