import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import type { Identifier } from '../../src/profile/identifier.ts';
import { createGroup } from '../setup/workspace.ts';
import { alias, by, identity, remove, user } from './objects.ts';
import { createScene, does, has, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

const phones = (last: number) => `+4420718387${last}`;
const renames = (current_external_id: string, new_external_id: string) =>
  identity('external_id_rename', { current_external_id, new_external_id });
const gives = (text: string, external_id: string) => identity('alias_new', { ...alias(text), external_id });

describe('a delete', () => {
  test.each<[string, Identifier]>([
    ['external id', user('kinds')],
    ['deprecated external id', user('kinds before')],
    ['alias', alias('l:kinds')],
    ['email', { email: 'kinds@x.com' }],
    ['phone', { phone: phones(50) }],
  ])('by %s removes the user with all data that belongs only to the user', async (_, identifier) => {
    const standard = { email: 'kinds@x.com', phone: phones(50), phone_valid: true };
    await scene.apply([
      has('kinds before', { standard, push_tokens: [{ app_id: 'app', token: 'k', device_id: 'd' }] }),
      renames('kinds before', 'kinds'),
      gives('l:kinds', 'kinds'),
      does('kinds'),
    ]);
    const group = await createGroup(scene.pool, scene.workspaceId, 'email', { name: `kinds ${_}` });
    const id = await scene.profileId('kinds');
    await scene.rows('insert into app_summaries values ($1, $2, $3, 1, now(), now())', [
      ...[scene.workspaceId, id, 'app'],
    ]);
    await scene.rows("insert into subscription_states values ($1, 'profile', $2, $3, 'subscribed', now())", [
      ...[scene.workspaceId, id, group],
    ]);
    await scene.apply([identity('delete', { user: by(identifier) })]);
    for (const name of ['kinds', 'kinds before']) expect(await scene.user(name)).toBeUndefined();
    expect(await scene.aliased('l:kinds')).toBeUndefined();
    for (const table of dependents) {
      const column = table === 'subscription_states' ? 'subject' : table === 'profiles' ? 'id' : 'profile_id';
      const left = await scene.rows(`select from ${table} where ${column}::text = $1`, [id]);
      expect({ table, left }).toEqual({ table, left: [] });
    }
  });

  it('by service id removes the user; a later track creates a new one', async () => {
    await scene.apply([has('anew', { set: { points: 1 } }), does('anew')]);
    const { service_id } = await scene.user('anew');
    await scene.apply([identity('delete', { user: by({ service_id }) }), does('anew', 'first')]);
    const recreated = await scene.user('anew');
    expect(recreated.service_id).not.toBe(service_id);
    expect(recreated.custom_attributes).toBeUndefined();
    expect(recreated.custom_events).toMatchObject([{ name: 'first', count: 1 }]);
  });

  it('by an address removes a user only if the prioritization leaves exactly one', async () => {
    const address = { email: 'left@x.com' };
    for (const name of ['left 1', 'left 2']) await scene.apply([has(name, { standard: address })]);
    await scene.apply([identity('delete', { user: by(address, 'identified') })]);
    expect(await scene.user('left 1')).toBeDefined();
    await scene.apply([identity('delete', { user: by(address, 'least_recently_updated') })]);
    expect(await scene.user('left 1')).toBeUndefined();
    expect(await scene.user('left 2')).toBeDefined();
  });

  it('removes the states of an address with its last user, and not before', async () => {
    const address = { email: 'last@x.com', phone: phones(51), phone_valid: true };
    const groups = [
      await createGroup(scene.pool, scene.workspaceId, 'email', { name: 'last email' }),
      await createGroup(scene.pool, scene.workspaceId, 'sms', { name: 'last sms' }),
    ];
    const states = () =>
      scene.rows(
        `select state from email_addresses where email = $1
         union all select state from subscription_states where subject in ($1, $2)`,
        [address.email, address.phone],
      );
    await scene.apply([has('last 1', { standard: address }), has('last 2', { standard: address })]);
    await scene.apply([
      has('last 1', {
        email_subscribe: 'unsubscribed',
        subscription_groups: groups.map((subscription_group_id) => ({
          ...{ subscription_group_id, subscription_state: 'unsubscribed' as const },
        })),
      }),
    ]);
    await scene.apply([remove('last 1')]);
    expect(await states()).toHaveLength(3);
    expect((await scene.user('last 2')).email_subscribe).toBe('unsubscribed');
    await scene.apply([remove('last 2')]);
    expect(await states()).toEqual([]);
  });

  test.each([
    ['gets', ['next 1'], 'subscribed'],
    ['gives away', ['next 1', 'next 2'], 'unsubscribed'],
  ])(
    'after a user %s an address in the same batch, the result equals separate batches',
    async (what, holders, state) => {
      const [email, other] = [`${what.replace(' ', '')}@x.com`, `${what.replace(' ', '')}@y.com`];
      const named = holders.map((name) => `${what} ${name}`);
      const holds = (external_id: string, address: string) =>
        has(external_id, { standard: { email: address } });
      await scene.apply(named.map((name) => holds(name, email)));
      await scene.apply([
        has(named[0]!, { email_subscribe: 'unsubscribed' }),
        has(`${what} next 2`, { set: { there: true } }),
      ]);
      await scene.apply([remove(named[0]!), holds(`${what} next 2`, holders.length === 1 ? email : other)]);
      await scene.apply([holds(`${what} next 3`, email)]);
      expect((await scene.user(`${what} next 3`)).email_subscribe).toBe(state);
    },
  );

  it('releases the token of the deleted user for an import in the same batch', async () => {
    const push_tokens = [{ app_id: 'app', token: 'imported', device_id: 'imported' }];
    await scene.apply([has('token', { push_tokens })]);
    const { identifier, ...imported } = has('', { push_tokens });
    await scene.apply([remove('token'), imported]);
    const actual = await scene.exported({ device_id: 'imported' });
    expect(actual).toBeDefined();
    expect(actual.external_id).toBeUndefined();
  });
});

const dependents = [
  ...['profiles', 'user_aliases', 'deprecated_external_ids', 'push_tokens', 'app_summaries'],
  ...['event_summaries', 'purchase_summaries', 'subscription_states'],
];
