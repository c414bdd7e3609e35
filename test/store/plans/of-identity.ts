import { newId } from '../../../src/platform/ids.ts';
import {
  deprecateExternalIds,
  moveAliases,
  removeDeprecatedExternalIds,
  renameAliases,
  setExternalIds,
} from '../../../src/store/alternate-identifiers.ts';
import { dropUnheldAddresses } from '../../../src/store/email-addresses.ts';
import {
  eraseActivity,
  eraseHistories,
  eraseSlice,
  freeAliases,
  freeExternalIds,
  recordDeletes,
} from '../../../src/store/erasures.ts';
import { mergeAppSummaries, mergeEventSummaries } from '../../../src/store/events.ts';
import { isPassed, readHorizon } from '../../../src/store/horizon.ts';
import { forgetDeadLetters, handOverDeadLetters, removeNames } from '../../../src/store/left-names.ts';
import { mergeProfiles, recordMerges } from '../../../src/store/merges.ts';
import { bringFailures, eraseFailures } from '../../../src/store/named-failures.ts';
import { movePushTokens } from '../../../src/store/profile-attributes.ts';
import { removeProfiles } from '../../../src/store/profiles.ts';
import { mergePurchaseSummaries } from '../../../src/store/purchases.ts';
import {
  forgetInvalidNumbers,
  markInvalidNumbers,
  removeInvalidNumbers,
} from '../../../src/store/suppression-lists.ts';
import {
  dropSettled,
  findKept,
  lockTombstones,
  selectTombstones,
  spreadDeletes,
} from '../../../src/store/tombstones.ts';
import type { Asking } from './asking.ts';

/** Changes of names, merges, deletes, and their follow-up work. */
export const ofIdentity: Asking = (store, { workspaceId, users }) => {
  const now = new Date().toISOString();
  const keys = users.map(({ id }) => ({ workspaceId, id }));
  const [merged, kept] = users as [(typeof users)[0], (typeof users)[0]];
  const pairs = [{ workspaceId, mergedId: merged.id, keptId: kept.id, requestId: newId() }];
  const alias = { aliasLabel: 'label', oldAliasName: 'alias2', newAliasName: 'new' };
  return [
    () => forgetInvalidNumbers(store, undefined),
    () => deprecateExternalIds(store, [{ workspaceId, externalId: 'new', profileId: kept.id }], now),
    () => removeDeprecatedExternalIds(store, [{ workspaceId, externalId: 'old2' }]),
    () => setExternalIds(store, [{ workspaceId, id: kept.id, externalId: 'new', ordinal: 0 }], now),
    () => renameAliases(store, [{ workspaceId, ...alias, profileId: kept.id }]),
    () => mergeProfiles(store, pairs, now),
    () => mergeEventSummaries(store, pairs, 100),
    () => mergePurchaseSummaries(store, pairs, 100),
    () => mergeAppSummaries(store, pairs),
    () => moveAliases(store, pairs),
    () => movePushTokens(store, pairs, 100),
    () => recordMerges(store, pairs, now),
    () => handOverDeadLetters(store, pairs),
    () =>
      forgetDeadLetters(
        store,
        {
          keys,
          named: [
            { workspaceId, identifier: { external_id: 'user2' } },
            { workspaceId, identifier: { email: merged.email } },
            { workspaceId, identifier: { phone: merged.phone } },
          ],
        },
        now,
      ),
    () => recordDeletes(store, keys, now),
    () => removeProfiles(store, keys),
    () => markInvalidNumbers(store, workspaceId, { phones: ['+44202'], reason: 'deactivated' }),
    () => removeInvalidNumbers(store, workspaceId, ['+44202']),
    () =>
      dropUnheldAddresses(
        store,
        [
          { workspaceId, kind: 'email', address: merged.email },
          { workspaceId, kind: 'phone', address: merged.phone },
        ],
        new Date().toISOString(),
      ),
    () => eraseSlice(store, 'names', { keys, rowsOfEach: 100 }),
    () => eraseSlice(store, 'belongings', { keys, rowsOfEach: 100 }),
    () => eraseActivity(store, 'events', { keys, limit: 1000 }),
    () => eraseActivity(store, 'purchases', { keys, limit: 1000 }),
    () => freeAliases(store, [{ workspaceId, aliasLabel: 'label', aliasName: 'alias2' }]),
    () => freeExternalIds(store, [{ workspaceId, externalId: 'old2' }]),
    () => spreadDeletes(store, keys, 100),
    () => findKept(store, keys),
    () => lockTombstones(store, keys),
    ...(['owned', 'named'] as const).map(
      (which) => () => bringFailures(store, pairs, { which, rowsOfEach: 100 }),
    ),
    () => eraseFailures(store, keys, 100),
    () => removeNames(store, keys, 100),
    ...(['merged', 'deleted'] as const).map(
      (fate) => () =>
        dropSettled(
          store,
          keys.map((key) => ({ ...key, fate })),
          fate,
        ),
    ),
    () => eraseHistories(store, 100),
    () => selectTombstones(store, 100),
    () => readHorizon(store),
    () => isPassed(store, '1'),
  ];
};
