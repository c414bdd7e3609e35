import type { AcceptedRemove, AcceptedRename } from '../../src/jobs/identity.ts';
import type { Changes } from '../track/fold.ts';
import { LOOK_AGAIN } from '../track/profiles.ts';
import type { Work } from '../track/work.ts';
import type { FoldedIdentity } from './fold-identity.ts';

/** The user goes by the new id; the old one still resolves. */
export function foldRename(
  { workspaceId, ordinal, object: { id: object_id } }: Work,
  { current_external_id, new_external_id }: AcceptedRename,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const holder = profiles.find(workspaceId, { external_id: current_external_id });
  const taken = profiles.find(workspaceId, { external_id: new_external_id });
  if (holder === LOOK_AGAIN || taken === LOOK_AGAIN) return LOOK_AGAIN;
  if (holder && !holder.holds()) return LOOK_AGAIN;
  const error =
    holder?.externalId !== current_external_id
      ? `no user goes by the current_external_id '${current_external_id}'`
      : taken
        ? 'new_external_id is already in use'
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
export function foldRemove(
  { workspaceId, object: { id: object_id } }: Work,
  { external_id }: AcceptedRemove,
  { profiles, identity }: Changes,
): FoldedIdentity {
  const holder = profiles.find(workspaceId, { external_id });
  if (holder === LOOK_AGAIN || (holder && !holder.holds())) return LOOK_AGAIN;
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
