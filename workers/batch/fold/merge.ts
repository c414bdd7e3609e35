import type { AcceptedIdentify, AcceptedMerge } from '../../../src/jobs/payloads.ts';
import { MAX_CUSTOM_BYTES } from '../../../src/profile/custom-values.ts';
import type { Changes, FoldedIdentity } from '../changes.ts';
import type { HeldProfile } from '../held-profile.ts';
import { pick } from '../profiles.ts';
import { RELOAD, type WorkItem } from '../work-item.ts';
import { canMove, meetsSealed, moveEmail, movePhone } from './states.ts';

/** Bytes, as stored, of custom attributes that two users may have together: each may have half of it. */
const MAX_MERGED_BYTES = 2 * MAX_CUSTOM_BYTES;

/**
 * Nothing happens unless each side means exactly one user, and not the same; nor when both have a phone number that
 * cannot exist.
 */
export function foldMerge(item: WorkItem, { merge, keep }: AcceptedMerge, changes: Changes): FoldedIdentity {
  const merged = pick(changes.profiles, item.workspaceId, merge);
  const kept = pick(changes.profiles, item.workspaceId, keep);
  if (merged === RELOAD || kept === RELOAD) return RELOAD;
  if (!merged || !kept || merged === kept) return undefined;
  if (!merged.holds() || !kept.holds()) return RELOAD;
  if (hasInvalidPhone(merged) && hasInvalidPhone(kept)) return undefined;
  return combine(merged, kept, item, changes);
}

function hasInvalidPhone({ phone, phoneValid }: HeldProfile): boolean {
  return phone !== null && !phoneValid;
}

/**
 * Gives a user without an external id the one named, or merges it into who has that, whose aliases win: another name
 * under a label that both have means nobody from then on. A user who goes by an external id already is identified.
 */
export function foldIdentify(
  item: WorkItem,
  { user, external_id }: AcceptedIdentify,
  changes: Changes,
): FoldedIdentity {
  const { workspaceId, ordinal } = item;
  const { profiles, identity } = changes;
  const found = pick(profiles, workspaceId, user);
  const owner = profiles.find(workspaceId, { external_id });
  if (found === RELOAD || owner === RELOAD) return RELOAD;
  if (found && !found.holds()) return RELOAD;
  if (!found || found.externalId !== null || found === owner) return undefined;
  if (owner) return combine(found, owner, item, changes);
  identity.externalIds.push({ workspace_id: workspaceId, id: found.id, external_id, ordinal });
  profiles.seal(found);
  profiles.sealIdentifier(workspaceId, { external_id });
  return undefined;
}

/** Addresses move here, with the states that hang on them; the store moves all else. */
function combine(
  merged: HeldProfile,
  kept: HeldProfile,
  { ordinal, requestId }: WorkItem,
  changes: Changes,
): FoldedIdentity {
  if (!merged.holds() || !kept.holds()) return RELOAD;
  const { profiles, identity } = changes;
  // The merged profile loses its addresses, whether the kept one gets them or not.
  if (meetsSealed(merged.workspaceId, merged, { email: null, phone: null }, changes)) return RELOAD;
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
