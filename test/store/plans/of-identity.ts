import { newId } from '../../../src/ids.ts';
import { deprecateExternalIds } from '../../../src/store/identity/deprecate-external-ids.ts';
import { dropUnheldAddresses } from '../../../src/store/identity/drop-unheld-addresses.ts';
import { eraseSummaries } from '../../../src/store/identity/erase-summaries.ts';
import { forgetDeadLetters } from '../../../src/store/identity/forget-dead-letters.ts';
import { handOverDeadLetters } from '../../../src/store/identity/hand-over-dead-letters.ts';
import { mergeAppSummaries } from '../../../src/store/identity/merge-app-summaries.ts';
import { mergeEventSummaries } from '../../../src/store/identity/merge-event-summaries.ts';
import { mergeProfiles } from '../../../src/store/identity/merge-profiles.ts';
import { mergePurchaseSummaries } from '../../../src/store/identity/merge-purchase-summaries.ts';
import { moveAliases } from '../../../src/store/identity/move-aliases.ts';
import { movePushTokens } from '../../../src/store/identity/move-push-tokens.ts';
import { recordDeletes } from '../../../src/store/identity/record-deletes.ts';
import { recordMerges } from '../../../src/store/identity/record-merges.ts';
import { removeDeprecatedExternalIds } from '../../../src/store/identity/remove-deprecated-external-ids.ts';
import { removeProfiles } from '../../../src/store/identity/remove-profiles.ts';
import { renameAliases } from '../../../src/store/identity/rename-aliases.ts';
import { setExternalIds } from '../../../src/store/identity/set-external-ids.ts';
import { eraseActivity } from '../../../src/store/removals/erase-activity.ts';
import { findKept } from '../../../src/store/removals/find-kept.ts';
import { finishRemovals } from '../../../src/store/removals/finish-removals.ts';
import { isPassed, readHorizon } from '../../../src/store/removals/horizon.ts';
import { lockRemoved } from '../../../src/store/removals/lock-removed.ts';
import { selectRemoved } from '../../../src/store/removals/select-removed.ts';
import type { Asking } from './asking.ts';

/** Names given and taken away, merges, deletes and what is left to do after them. */
export const ofIdentity: Asking = (store, { workspaceId, users }) => {
  const now = new Date();
  const workspace = { workspace_id: workspaceId };
  const keys = users.map(({ id }) => ({ ...workspace, id }));
  const [merged, kept] = users as [(typeof users)[0], (typeof users)[0]];
  const pairs = [{ ...workspace, merged_id: merged.id, kept_id: kept.id, request_id: newId() }];
  const alias = { alias_label: 'label', old_alias_name: 'alias2', new_alias_name: 'new' };
  return [
    () => deprecateExternalIds(store, [{ ...workspace, external_id: 'new', profile_id: kept.id }], now),
    () => removeDeprecatedExternalIds(store, [{ ...workspace, external_id: 'old2' }]),
    () => setExternalIds(store, [{ ...workspace, id: kept.id, external_id: 'new', ordinal: 0 }], now),
    () => renameAliases(store, [{ ...workspace, ...alias }]),
    () => mergeProfiles(store, pairs, now),
    () => mergeEventSummaries(store, pairs),
    () => mergePurchaseSummaries(store, pairs),
    () => mergeAppSummaries(store, pairs),
    () => moveAliases(store, pairs),
    () => movePushTokens(store, pairs),
    () => recordMerges(store, pairs, now),
    () => handOverDeadLetters(store, pairs),
    () =>
      forgetDeadLetters(store, keys, [
        { workspaceId, identifier: { external_id: 'user2' } },
        { workspaceId, identifier: { email: merged.email } },
        { workspaceId, identifier: { phone: merged.phone } },
      ]),
    () => recordDeletes(store, keys, now),
    () => removeProfiles(store, keys),
    () =>
      dropUnheldAddresses(store, [
        { workspaceId, kind: 'email', address: merged.email },
        { workspaceId, kind: 'phone', address: merged.phone },
      ]),
    () => eraseSummaries(store, keys),
    () => eraseActivity(store, 'events', keys, 1000),
    () => eraseActivity(store, 'purchases', keys, 1000),
    () => findKept(store, keys),
    () => lockRemoved(store, keys),
    () =>
      finishRemovals(
        store,
        keys.map((key) => ({ ...key, fate: 'deleted' as const })),
        'deleted',
      ),
    () => selectRemoved(store, 100),
    () => readHorizon(store),
    () => isPassed(store, '1'),
  ];
};
