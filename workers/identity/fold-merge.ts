import type { AcceptedIdentify, AcceptedMerge } from '../../src/jobs/identity.ts';
import type { Changes } from '../track/fold.ts';
import type { HeldProfile } from '../track/held-profile.ts';
import { canMove, meetsSealed, moveEmail, movePhone } from '../track/move-states.ts';
import { LOOK_AGAIN } from '../track/profiles.ts';
import type { Work } from '../track/work.ts';
import type { FoldedIdentity } from './fold-identity.ts';
import { pick } from './pick.ts';

/**
 * Nothing happens unless each side means exactly one user, and not the same; nor when both have a phone number that
 * cannot exist.
 */
export function foldMerge(work: Work, { merge, keep }: AcceptedMerge, changes: Changes): FoldedIdentity {
  const merged = pick(changes.profiles, work.workspaceId, merge);
  const kept = pick(changes.profiles, work.workspaceId, keep);
  if (merged === LOOK_AGAIN || kept === LOOK_AGAIN) return LOOK_AGAIN;
  if (!merged || !kept || merged === kept) return undefined;
  if (!merged.holds() || !kept.holds()) return LOOK_AGAIN;
  if (hasInvalidPhone(merged) && hasInvalidPhone(kept)) return undefined;
  return combine(merged, kept, work, changes);
}

function hasInvalidPhone({ phone, phoneValid }: HeldProfile): boolean {
  return phone !== null && !phoneValid;
}

/**
 * Gives a user without an external id the one named, or merges it into who has that. A user who goes by an
 * external id already is identified; one under whose label the other has an alias stays apart.
 */
export function foldIdentify(
  work: Work,
  { user, external_id }: AcceptedIdentify,
  changes: Changes,
): FoldedIdentity {
  const { workspaceId, ordinal } = work;
  const { profiles, identity } = changes;
  const found = pick(profiles, workspaceId, user);
  const owner = profiles.find(workspaceId, { external_id });
  if (found === LOOK_AGAIN || owner === LOOK_AGAIN) return LOOK_AGAIN;
  if (found && !found.holds()) return LOOK_AGAIN;
  if (!found || found.externalId !== null || found === owner) return undefined;
  if (owner) {
    if (!owner.labels) return LOOK_AGAIN;
    const { identifier } = user;
    if ('user_alias' in identifier && owner.labels.has(identifier.user_alias.alias_label)) return undefined;
    return combine(found, owner, work, changes);
  }
  identity.externalIds.push({ workspace_id: workspaceId, id: found.id, external_id, ordinal });
  profiles.seal(found);
  profiles.sealIdentifier(workspaceId, { external_id });
  return undefined;
}

/** Addresses move here, with the states that hang on them; the store moves all else. */
function combine(
  merged: HeldProfile,
  kept: HeldProfile,
  { ordinal, requestId }: Work,
  changes: Changes,
): FoldedIdentity {
  if (!merged.holds() || !kept.holds()) return LOOK_AGAIN;
  const { profiles, identity } = changes;
  // The merged profile loses its addresses, whether the kept one gets them or not.
  if (meetsSealed(merged.workspaceId, merged, { email: null, phone: null }, changes)) return LOOK_AGAIN;
  const email = kept.email === null ? merged.email : null;
  const phone = kept.phone === null ? merged.phone : null;
  const moving = {
    ...(email !== null && { email }),
    ...(phone !== null && { phone, phone_valid: merged.phoneValid }),
  };
  if (!canMove(kept, moving, changes)) return LOOK_AGAIN;
  kept.change(ordinal);
  if (email !== null) moveEmail(kept, email, changes);
  if (phone !== null) movePhone(kept, phone, merged.phoneValid, changes);
  identity.merges.push({
    workspace_id: kept.workspaceId,
    merged_id: merged.id,
    kept_id: kept.id,
    request_id: requestId,
  });
  profiles.seal(merged);
  profiles.seal(kept);
  return undefined;
}
