import { newId } from '../../../src/platform/ids.ts';
import { JsonText } from '../../../src/profile/json.ts';
import { readDefinition } from '../../../src/profile/segment.ts';
import { listNames, readSeries } from '../../../src/store/activity-series.ts';
import {
  countDeprecated,
  findAliasLabels,
  findByAlias,
  findByDeprecatedExternalId,
  insertAliases,
} from '../../../src/store/alternate-identifiers.ts';
import { changeStamp } from '../../../src/store/attribute-changes.ts';
import { countAttributeNames, recordAttributeNames } from '../../../src/store/attribute-names.ts';
import { recordEvents } from '../../../src/store/events.ts';
import { readProfiles } from '../../../src/store/export.ts';
import {
  findByEmail,
  findByExternalId,
  findById,
  findByPhone,
  findCandidates,
  findIdsByExternalId,
} from '../../../src/store/identifiers.ts';
import { selectDeadLettersOfUser } from '../../../src/store/named-failures.ts';
import { findKeptProfile, findLinkUser, revokeLinks } from '../../../src/store/preference-centers.ts';
import {
  findPushTokens,
  readLargeAttributes,
  updateCustomAttributes,
  upsertPushTokens,
} from '../../../src/store/profile-attributes.ts';
import { findExported, newestUsers, searchUsers } from '../../../src/store/profile-search.ts';
import { insertProfiles, lockProfiles, updateProfiles } from '../../../src/store/profiles.ts';
import { recordPurchases } from '../../../src/store/purchases.ts';
import { evaluateUsers, findSegment } from '../../../src/store/segments.ts';
import {
  readActivity,
  readActivityKeys,
  selectAttributeChanges,
  selectMerged,
  selectRenamed,
} from '../../../src/store/timeline.ts';
import { inSnapshot } from '../../../src/store/transactions.ts';
import { indexUsers, listUsers, searchParts } from '../../../src/store/user-search.ts';
import type { Asking } from './asking.ts';

/** Profiles, their activity, and reports about them. */
export const ofUsers: Asking = (store, { workspaceId, users }) => {
  const now = new Date().toISOString();
  const time = now;
  const owners = users.map(() => workspaceId);
  const ids = users.map(({ id }) => id);
  const externalIds = users.map(({ external_id }) => external_id);
  const emails = users.map(({ email }) => email);
  const phones = users.map(({ phone }) => phone);
  const keys = ids.map((id) => ({ workspaceId, id }));
  const changes = keys.map((key, ordinal) => ({
    ...key,
    set: new JsonText('{"points":2}'),
    unset: ['gone'],
    ordinal,
    stamp: changeStamp(newId(), newId()),
  }));
  const did = ids.map((profileId, ordinal) => ({
    ...{
      workspaceId,
      id: newId(),
      profileId,
      time,
      appId: 'app',
      properties: {},
      ordinal,
      lane: 0,
    },
  }));
  const token = { workspaceId, appId: 'app', token: 'token2', deviceId: 'device2' };
  const [id] = ids as [string];
  return [
    () => findByExternalId(store, owners, externalIds),
    () => findIdsByExternalId(store, owners, externalIds),
    () => findByDeprecatedExternalId(store, owners, ['old2', 'old4', 'old6', 'old8']),
    () =>
      findByAlias(store, {
        workspaceIds: owners,
        labels: owners.map(() => 'label'),
        names: ['alias2', 'alias4', 'alias6', 'alias8'],
      }),
    () => findById(store, owners, ids),
    () => findByEmail(store, owners, emails),
    () => findByPhone(store, owners, phones),
    () => findCandidates(store, 'email', { workspaceIds: owners, addresses: emails }),
    () => findCandidates(store, 'phone', { workspaceIds: owners, addresses: phones }),
    () => findAliasLabels(store, keys),
    () => countDeprecated(store, keys),
    () => findPushTokens(store, [{ workspaceId, appId: 'app', token: 'token2' }]),
    () =>
      readLargeAttributes(
        store,
        keys.map(({ workspaceId, id }) => ({
          workspaceId,
          id,
          names: ['visits', 'none'],
          keys: ['visits'],
        })),
      ),
    () =>
      lockProfiles(
        store,
        ids.map((id) => ({ profile: { workspaceId, id }, keys: new Set(['points']), measured: true })),
      ),
    () =>
      insertProfiles(
        store,
        [
          {
            ...{ workspaceId, id: newId(), externalId: 'new', ordinal: 0, customAttributes: {} },
            attributeChanges: undefined,
          },
        ],
        now,
      ),
    () => insertAliases(store, [{ workspaceId, aliasLabel: 'other', aliasName: 'new', profileId: id }], now),
    () => updateCustomAttributes(store, changes, now),
    () =>
      updateProfiles(
        store,
        changes.map((change) => ({ ...change, columns: { country: 'DE' } })),
        now,
      ),
    () => countAttributeNames(store, workspaceId),
    () => recordAttributeNames(store, [{ workspaceId, name: 'plan', types: 1 }], now),
    () => upsertPushTokens(store, [{ ...token, profileId: id }], now),
    () =>
      recordEvents(
        store,
        did.map((one) => ({ ...one, name: 'event2' })),
        now,
      ).stored,
    () =>
      evaluateUsers(store, {
        ...{ workspaceId, after: id, limit: 100, sample: 5 },
        definition: readDefinition({
          all: [
            { attribute: 'email', equals: 'user2@x.com' },
            { custom_attribute: 'points', more_than: 0, in: [1, 2] },
            { email_subscription: 'subscribed' },
            { subscription_group: newId(), state: 'subscribed' },
            {
              any: [{ event: 'event2', count_at_most: 3 }, { purchase: 'product2' }, { any_purchase: true }],
            },
          ],
        }),
      }),
    () => inSnapshot(store, 'place', async () => {}),
    () => findSegment(store, workspaceId, newId()),
    () => listNames(store, workspaceId, { kind: 'event', limit: 250, offset: 250, after: '' }),
    () =>
      readSeries(store, workspaceId, {
        ...{ kind: 'event', name: 'name2', unit: 'day' },
        ...{ from: Date.now() - 8_640_000_000, to: Date.now() },
      }),
    () =>
      recordPurchases(
        store,
        did.map((one) => ({ ...one, productId: 'product2', currency: 'USD', price: 1, quantity: 1 })),
        now,
      ).stored,
    () =>
      findExported(store, workspaceId, [
        { place: 0, externalId: 'user2' },
        { place: 1, aliasLabel: 'label', aliasName: 'alias2' },
        { place: 2, id },
        { place: 3, email: emails[0]! },
        { place: 4, phone: phones[0]! },
        { place: 5, deviceId: 'device2' },
      ]),
    () =>
      readProfiles(store, workspaceId, {
        ids,
        fields: [
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
        ],
      }),
    () =>
      searchUsers(store, [workspaceId], {
        search: {
          ...{ id, externalId: 'user2', prefix: 'user2', aliasName: 'alias2' },
          ...{ alias: { label: 'label', name: 'alias2' } },
          ...{ email: emails[0]!, phone: phones[0]! },
        },
        limit: 50,
      }),
    () => searchUsers(store, [workspaceId], { search: { aliasName: 'alias2' }, limit: 50 }),
    () => newestUsers(store, [workspaceId], 25),
    () => indexUsers(store, { turn: 500 }),
    () =>
      searchParts(store, {
        workspaceId,
        words: ['user2'],
        filters: { email: 'subscribed' },
        prefix: 'user2',
      }),
    () => listUsers(store, { workspaceId, words: ['nobody'], filters: {} }, { limit: 51 }),
    () => selectMerged(store, workspaceId, id),
    () => selectAttributeChanges(store, workspaceId, id),
    () => selectRenamed(store, { workspaceId, profileId: id, limit: 50 }),
    async () => {
      const part = { workspaceId, owners: ids, kinds: ['event', 'purchase'] as const, limit: 51 };
      await readActivity(store, workspaceId, await readActivityKeys(store, part));
    },
    () => selectDeadLettersOfUser(store, workspaceId, { names: [`u:${id}`, 'x:user2'], limit: 20 }),
    () => findKeptProfile(store, workspaceId, id),
    () => findLinkUser(store, workspaceId, 'user2'),
    () => revokeLinks(store, workspaceId, { kind: 'user', id }),
  ];
};
