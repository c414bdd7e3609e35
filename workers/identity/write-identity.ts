import { namedIdentifiers } from '../../src/jobs/named-identifiers.ts';
import { type Connection, sendTogether } from '../../src/store/database.ts';
import { deprecateExternalIds } from '../../src/store/identity/deprecate-external-ids.ts';
import { dropUnheldAddresses, type HeldAddress } from '../../src/store/identity/drop-unheld-addresses.ts';
import { eraseSummaries } from '../../src/store/identity/erase-summaries.ts';
import { forgetDeadLetters } from '../../src/store/identity/forget-dead-letters.ts';
import { handOverDeadLetters } from '../../src/store/identity/hand-over-dead-letters.ts';
import { mergeAppSummaries } from '../../src/store/identity/merge-app-summaries.ts';
import { mergeEventSummaries } from '../../src/store/identity/merge-event-summaries.ts';
import { mergeProfiles } from '../../src/store/identity/merge-profiles.ts';
import { mergePurchaseSummaries } from '../../src/store/identity/merge-purchase-summaries.ts';
import { moveAliases } from '../../src/store/identity/move-aliases.ts';
import { movePushTokens } from '../../src/store/identity/move-push-tokens.ts';
import type { MergePair, ProfileKey } from '../../src/store/identity/pair.ts';
import { recordDeletes } from '../../src/store/identity/record-deletes.ts';
import { recordMerges } from '../../src/store/identity/record-merges.ts';
import { removeDeprecatedExternalIds } from '../../src/store/identity/remove-deprecated-external-ids.ts';
import { removeProfiles } from '../../src/store/identity/remove-profiles.ts';
import { renameAliases } from '../../src/store/identity/rename-aliases.ts';
import { setExternalIds } from '../../src/store/identity/set-external-ids.ts';
import { recordOutcomes } from '../../src/store/outcomes/record-outcomes.ts';
import type { HeldProfile } from '../track/held-profile.ts';
import type { Work } from '../track/work.ts';
import type { IdentityChanges } from './changes.ts';

/**
 * Writes the identity operations of a round, behind everything else that was folded in it. The statements hold
 * each other up only by their order: none needs the answer of another.
 *
 * @param now the store's clock at the start of the batch
 */
export async function writeIdentity(tx: Connection, changes: IdentityChanges, now: Date): Promise<void> {
  const { renamedAliases, externalIds, deprecated, undeprecated, merges, deletes, outcomes } = changes;
  await sendTogether(tx, [
    () => renamedAliases.length > 0 && renameAliases(tx, renamedAliases),
    () => externalIds.length > 0 && setExternalIds(tx, externalIds, now),
    () => deprecated.length > 0 && deprecateExternalIds(tx, deprecated, now),
    () => undeprecated.length > 0 && removeDeprecatedExternalIds(tx, undeprecated),
    ...(merges.length > 0 ? merging(tx, merges, now) : []),
    ...(deletes.length > 0 ? deleting(tx, deletes, changes.deleted, now) : []),
    () => outcomes.length > 0 && recordOutcomes(tx, outcomes),
  ]);
}

function merging(tx: Connection, merges: MergePair[], now: Date): (() => Promise<void>)[] {
  const gone = merges.map(({ workspace_id, merged_id }) => ({ workspace_id, id: merged_id }));
  return [
    () => handOverDeadLetters(tx, merges),
    () => mergeProfiles(tx, merges, now),
    () => moveAliases(tx, merges),
    () => movePushTokens(tx, merges),
    () => mergeEventSummaries(tx, merges),
    () => mergePurchaseSummaries(tx, merges),
    () => mergeAppSummaries(tx, merges),
    () => recordMerges(tx, merges, now),
    () => removeProfiles(tx, gone),
  ];
}

function deleting(tx: Connection, deletes: Work[], deleted: HeldProfile[], now: Date): (() => unknown)[] {
  const gone: ProfileKey[] = deleted.map(({ workspaceId, id }) => ({ workspace_id: workspaceId, id }));
  const named = deletes.flatMap(({ workspaceId, object }) =>
    namedIdentifiers(object).map((identifier) => ({ workspaceId, identifier })),
  );
  const addresses = deleted.flatMap(addressesOf);
  return [
    () => forgetDeadLetters(tx, gone, named),
    () => gone.length > 0 && recordDeletes(tx, gone, now),
    () => gone.length > 0 && eraseSummaries(tx, gone),
    () => gone.length > 0 && removeProfiles(tx, gone),
    () => addresses.length > 0 && dropUnheldAddresses(tx, addresses),
  ];
}

function addressesOf({ workspaceId, email, phone, phoneValid }: HeldProfile): HeldAddress[] {
  const addresses: HeldAddress[] = [];
  if (email !== null) addresses.push({ workspaceId, kind: 'email', address: email });
  if (phone !== null && phoneValid) addresses.push({ workspaceId, kind: 'phone', address: phone });
  return addresses;
}
