import { newId } from '../../../src/ids.ts';
import { recordEvents } from '../../../src/store/activity/record-events.ts';
import { recordPurchases } from '../../../src/store/activity/record-purchases.ts';
import { findExported } from '../../../src/store/export/find-exported.ts';
import { readProfiles } from '../../../src/store/export/read-profiles.ts';
import { findKeptProfile } from '../../../src/store/preference-centers/find-kept-profile.ts';
import { findLinkUser } from '../../../src/store/preference-centers/find-link-user.ts';
import { revokeLinks } from '../../../src/store/preference-centers/revoke-links.ts';
import { findAliasLabels } from '../../../src/store/profiles/find-alias-labels.ts';
import { findByAlias } from '../../../src/store/profiles/find-by-alias.ts';
import { findByDeprecatedExternalId } from '../../../src/store/profiles/find-by-deprecated-external-id.ts';
import { findByEmail } from '../../../src/store/profiles/find-by-email.ts';
import { findByExternalId } from '../../../src/store/profiles/find-by-external-id.ts';
import { findById } from '../../../src/store/profiles/find-by-id.ts';
import { findByPhone } from '../../../src/store/profiles/find-by-phone.ts';
import { findCandidates } from '../../../src/store/profiles/find-candidates.ts';
import { findPushTokens } from '../../../src/store/profiles/find-push-tokens.ts';
import { insertAliases } from '../../../src/store/profiles/insert-aliases.ts';
import { insertProfiles } from '../../../src/store/profiles/insert-profiles.ts';
import { lockProfiles } from '../../../src/store/profiles/lock-profiles.ts';
import { updateCustomAttributes } from '../../../src/store/profiles/update-custom-attributes.ts';
import { updateProfiles } from '../../../src/store/profiles/update-profiles.ts';
import { upsertPushTokens } from '../../../src/store/profiles/upsert-push-tokens.ts';
import type { Asking } from './asking.ts';

/** Who they are, what they do, what is told of them. */
export const ofUsers: Asking = (store, { workspaceId, users }) => {
  const now = new Date();
  const time = now.toISOString();
  const owners = users.map(() => workspaceId);
  const ids = users.map(({ id }) => id);
  const externalIds = users.map(({ external_id }) => external_id);
  const emails = users.map(({ email }) => email);
  const phones = users.map(({ phone }) => phone);
  const keys = ids.map((id) => ({ workspace_id: workspaceId, id }));
  const changes = keys.map((key, ordinal) => ({ ...key, set: { points: 2 }, unset: ['gone'], ordinal }));
  const did = ids.map((profile_id, ordinal) => ({
    ...{ workspace_id: workspaceId, id: newId(), profile_id, time, app_id: 'app', properties: {}, ordinal },
  }));
  const token = { workspace_id: workspaceId, app_id: 'app', token: 'token2', device_id: 'device2' };
  const [id] = ids as [string];
  return [
    () => findByExternalId(store, owners, externalIds),
    () => findByDeprecatedExternalId(store, owners, ['old2', 'old4', 'old6', 'old8']),
    () =>
      findByAlias(
        store,
        owners,
        owners.map(() => 'label'),
        ['alias2', 'alias4', 'alias6', 'alias8'],
      ),
    () => findById(store, owners, ids),
    () => findByEmail(store, owners, emails),
    () => findByPhone(store, owners, phones),
    () => findCandidates(store, 'email', owners, emails),
    () => findCandidates(store, 'phone', owners, phones),
    () => findAliasLabels(store, keys),
    () => findPushTokens(store, [workspaceId], ['app'], ['token2']),
    () =>
      lockProfiles(
        store,
        keys.map((key) => ({ ...key, keys: ['points'] })),
      ),
    () =>
      insertProfiles(
        store,
        [
          {
            ...{ workspace_id: workspaceId, id: newId(), external_id: 'new', ordinal: 0 },
            ...{ email_subscribe: null, push_subscribe: null, custom_attributes: {} },
          },
        ],
        now,
      ),
    () =>
      insertAliases(
        store,
        [{ workspace_id: workspaceId, alias_label: 'other', alias_name: 'new', profile_id: id }],
        now,
      ),
    () => updateCustomAttributes(store, changes, now),
    () =>
      updateProfiles(
        store,
        changes.map((change) => ({ ...change, columns: { country: 'DE' } })),
        now,
      ),
    () => upsertPushTokens(store, [{ ...token, profile_id: id }], now),
    () =>
      recordEvents(
        store,
        did.map((one) => ({ ...one, name: 'event2' })),
        now,
      ),
    () =>
      recordPurchases(
        store,
        did.map((one) => ({ ...one, product_id: 'product2', currency: 'USD', price: 1, quantity: 1 })),
        now,
      ),
    () =>
      findExported(store, workspaceId, [
        { place: 0, external_id: 'user2' },
        { place: 1, alias_label: 'label', alias_name: 'alias2' },
        { place: 2, id },
        { place: 3, email: emails[0]! },
        { place: 4, phone: phones[0]! },
        { place: 5, device_id: 'device2' },
      ]),
    () =>
      readProfiles(store, workspaceId, ids, [
        ...[
          'custom_attributes',
          'user_aliases',
          'push_tokens',
          'custom_events',
          'purchases',
          'apps',
          'revenue',
        ],
        'subscription_groups',
      ]),
    () => findKeptProfile(store, workspaceId, id),
    () => findLinkUser(store, workspaceId, 'user2'),
    () => revokeLinks(store, workspaceId, { kind: 'user', id }),
  ];
};
