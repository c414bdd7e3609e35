import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../src/profile/json.ts';
import { backends, type Fleet, startFleet } from './guarantees/fleet.ts';
import { send } from './setup/api.ts';
import { waitUntil } from './setup/fixtures.ts';
import { createGroup, createWorkspace } from './setup/workspace.ts';

const time = '2026-01-31T12:00:00.000Z';

/** From HTTP to Postgres and back: what /users/track takes, /users/export/ids shows. */
describe.each(backends)('what is tracked is read back, with the queue in %s', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 1 });
  });
  afterAll(() => fleet.stop());

  async function track(json: Record<string, Json>, key = fleet.workspace.key) {
    const { status, body } = await send(fleet.edges[0]!.port, { path: '/users/track', key, json });
    expect({ status, message: body.message }).toEqual({ status: 201, message: 'success' });
    return body;
  }

  /** Everyone whom the identifiers mean now. */
  async function read(json: Record<string, Json>) {
    const { key } = fleet.workspace;
    const { status, body } = await send(fleet.edges[0]!.port, { path: '/users/export/ids', key, json });
    expect(status).toBe(201);
    return body.users;
  }

  /** The one user, as soon as reading it back shows what is expected. */
  async function shows(identifier: Record<string, Json>, expected: object) {
    let users: Record<string, Json>[] = [];
    const check = async () => {
      users = await read(identifier);
      expect(users).toEqual([expect.objectContaining(expected)]);
      return true;
    };
    await waitUntil(check, { what: `${JSON.stringify(identifier)} to show ${JSON.stringify(expected)}` });
    return users[0]!;
  }

  const ids = (...external_ids: string[]) => ({ external_ids });

  test('standard attributes, and null removes one', async () => {
    const external_id = 'standard';
    await track({
      attributes: [
        { external_id, first_name: 'Ada', dob: '1985-12-10', country: 'Australia', language: 'en' },
      ],
    });
    await shows(ids(external_id), { first_name: 'Ada', dob: '1985-12-10', country: 'AU', language: 'en' });
    await track({ attributes: [{ external_id, first_name: null, last_name: 'Lovelace' }] });
    const user = await shows(ids(external_id), { last_name: 'Lovelace' });
    expect(user).not.toHaveProperty('first_name');
  });

  test('custom attributes of every type, and null removes one', async () => {
    const custom = {
      string: 'blue',
      boolean: false,
      integer: 7,
      float: 1.5,
      date: '2026-01-30T08:00:00Z',
      strings: ['b', 'a'],
      object: { a: { b: 1 } },
      objects: [{ id: 1 }, { id: 2 }],
    };
    await track({ attributes: [{ external_id: 'custom', ...custom, gone: 1 }] });
    await shows(ids('custom'), { custom_attributes: { ...custom, gone: 1 } });
    await track({ attributes: [{ external_id: 'custom', gone: null, never: null }] });
    await shows(ids('custom'), { custom_attributes: custom });
  });

  test('inc, add, remove, _merge_objects, $add, $update, $remove, each on what the last one left', async () => {
    const of = (object: Record<string, Json>) => ({ external_id: 'operations', ...object });
    const match = (value: number) => ({ $identifier_key: 'id', $identifier_value: value });
    await track({
      attributes: [
        of({
          n: { inc: 5 },
          list: ['a', 'b'],
          tree: { a: { x: 1 }, b: 1 },
          rows: [{ id: 1, q: 1 }, { id: 2 }],
        }),
        of({ n: { inc: -2 }, list: { add: ['c', 'a'], remove: ['b'] } }),
        of({ tree: { a: { y: 2 }, b: null, at: { $time: '2026-01-30' } }, _merge_objects: true }),
      ],
    });
    await track({
      attributes: [
        of({
          rows: { $add: [{ id: 3 }], $remove: [match(2)], $update: [{ ...match(1), $new_object: { q: 9 } }] },
          _merge_objects: true,
        }),
      ],
    });
    await shows(ids('operations'), {
      custom_attributes: {
        n: 3,
        list: ['c', 'a'],
        tree: { a: { x: 1, y: 2 }, at: '2026-01-30T00:00:00.000Z' },
        rows: [{ id: 1, q: 9 }, { id: 3 }],
      },
    });
  });

  test('events and purchases, equal ones each for themselves, a future time as now', async () => {
    const event = { external_id: 'busy', name: 'seen', time };
    const purchase = { external_id: 'busy', product_id: 'book', price: 12.5, time };
    await track({
      events: [event, event, { ...event, name: 'later', time: '2099-01-01T00:00:00Z' }],
      purchases: [
        { ...purchase, currency: 'EUR', quantity: 2 },
        { ...purchase, currency: 'USD', price: 10 },
        { ...purchase, currency: 'USD', price: -4 },
      ],
    });
    const user = await shows(ids('busy'), {
      purchases: [{ name: 'book', first: time, last: time, count: 4 }],
      total_revenue: 6,
      revenue: { EUR: 25 },
    });
    const [later, seen] = user.custom_events as { name: string; last: string }[];
    expect(seen).toEqual({ name: 'seen', first: time, last: time, count: 2 });
    expect(later!.name).toBe('later');
    expect(Date.parse(later!.last)).toBeLessThanOrEqual(Date.now());
  });

  test('one request: attributes, then events, then purchases', async () => {
    const user_alias = { alias_name: 'order', alias_label: 'journey' };
    await track({
      purchases: [{ user_alias, product_id: 'book', currency: 'USD', price: 1, time }],
      events: [{ user_alias, name: 'seen', time }],
      attributes: [{ user_alias, _update_existing_only: false, n: 1 }],
    });
    // Neither the event nor the purchase makes a profile for an alias: they find the one of the attributes.
    await shows(
      { user_aliases: [user_alias] },
      {
        custom_attributes: { n: 1 },
        custom_events: [{ name: 'seen', first: time, last: time, count: 1 }],
        purchases: [{ name: 'book', first: time, last: time, count: 1 }],
      },
    );
  });

  test('good objects of a request with bad ones', async () => {
    const body = await track({
      attributes: [
        { external_id: 'mixed', email: 'no address' },
        { external_id: 'mixed', n: 1 },
      ],
      events: [
        { external_id: 'mixed', name: 'seen', time: 'soon' },
        { external_id: 'mixed', name: 'seen', time },
      ],
    });
    expect(body).toMatchObject({
      attributes_processed: 1,
      events_processed: 1,
      errors: [{ index: 0 }, { index: 0 }],
    });
    const user = await shows(ids('mixed'), {
      custom_attributes: { n: 1 },
      custom_events: [expect.anything()],
    });
    expect(user).not.toHaveProperty('email');
  });

  test('an email address of nobody makes one email-only profile, without alias', async () => {
    await track({
      attributes: [{ email: 'Only@Example.com', n: 1 }],
      events: [{ email: 'only@example.com', name: 'seen', time }],
    });
    const user = await shows(
      { email_address: 'only@example.com' },
      { email: 'only@example.com', custom_attributes: { n: 1 }, custom_events: [expect.anything()] },
    );
    expect(user).not.toHaveProperty('user_aliases');
    expect(user).not.toHaveProperty('external_id');
  });

  test('a phone number of nobody makes one phone-only profile', async () => {
    await track({
      attributes: [{ phone: '(415) 555-2671', n: 1 }],
      purchases: [{ phone: '+14155552671', product_id: 'a', currency: 'USD', price: 1, time }],
    });
    await shows(
      { phone: '+14155552671' },
      { phone: '+14155552671', custom_attributes: { n: 1 }, total_revenue: 1 },
    );
  });

  test('several profiles on one email address: the most recently updated one with an external id', async () => {
    const email = 'several@example.com';
    await track({ attributes: [{ email, n: 0 }] });
    await shows({ email_address: email }, { custom_attributes: { n: 0 } });
    for (const external_id of ['several-1', 'several-2']) {
      await track({ attributes: [{ external_id, email }] });
      await shows(ids(external_id), { email });
    }
    await track({ attributes: [{ email, chosen: 'second' }] });
    await shows(ids('several-2'), { custom_attributes: { chosen: 'second' } });
    await track({ events: [{ external_id: 'several-1', name: 'seen', time }] });
    await shows(ids('several-1'), { custom_events: [expect.anything()] });
    await track({ attributes: [{ email, chosen: 'first' }] });
    await shows(ids('several-1'), { custom_attributes: { chosen: 'first' } });
    const everyone = await read({ email_address: email, fields_to_export: ['custom_attributes'] });
    expect(everyone).toHaveLength(3);
    expect(everyone).toContainEqual({ custom_attributes: { n: 0 } });
  });

  test('a service id addresses the profile that has it, and never makes one', async () => {
    await track({ attributes: [{ external_id: 'known', n: 1 }] });
    const { service_id } = await shows(ids('known'), { external_id: 'known' });
    await track({
      attributes: [
        { service_id: service_id!, n: 2 },
        { service_id: '0'.repeat(24), n: 3 },
      ],
    });
    await shows({ service_id: service_id! }, { external_id: 'known', custom_attributes: { n: 2 } });
    await track({
      attributes: [
        { service_id: '0'.repeat(24), n: 4 },
        { service_id: service_id!, n: 5 },
      ],
    });
    await shows({ service_id: service_id! }, { custom_attributes: { n: 5 } });
    expect(await read({ service_id: '0'.repeat(24) })).toEqual([]);
  });

  test('an alias makes a profile only with an explicit false', async () => {
    const user_alias = { alias_name: 'explicit', alias_label: 'journey' };
    await track({ attributes: [{ user_alias, n: 1 }], events: [{ user_alias, name: 'omitted', time }] });
    await track({ events: [{ user_alias, name: 'true', time, _update_existing_only: true }] });
    await track({ events: [{ user_alias, name: 'false', time, _update_existing_only: false }] });
    await track({ events: [{ user_alias, name: 'exists', time }] });
    const user = await shows(
      { user_aliases: [user_alias] },
      {
        user_aliases: [user_alias],
        custom_events: [
          expect.objectContaining({ name: 'exists' }),
          expect.objectContaining({ name: 'false' }),
        ],
      },
    );
    expect(user).not.toHaveProperty('custom_attributes');
  });

  test('update-only objects for a user who does not exist are ignored', async () => {
    const only = { _update_existing_only: true };
    for (const [identifier, asked] of [
      [{ external_id: 'ghost' }, ids('ghost')],
      [{ email: 'ghost@example.com' }, { email_address: 'ghost@example.com' }],
    ] as const) {
      await track({
        attributes: [{ ...identifier, ...only, ignored: 1 }],
        events: [{ ...identifier, ...only, name: 'ignored', time }],
      });
      await track({ attributes: [{ ...identifier, n: 1 }] });
      const user = await shows(asked, { custom_attributes: { n: 1 } });
      expect(user).not.toHaveProperty('custom_events');
      await track({ attributes: [{ ...identifier, ...only, n: 2 }] });
      await shows(asked, { custom_attributes: { n: 2 } });
    }
  });

  test('an email state is shared by everyone on the address', async () => {
    const email = 'shared@example.com';
    await track({ attributes: [{ external_id: 'shared-1', email }] });
    await track({ attributes: [{ external_id: 'shared-2', email }] });
    await shows(ids('shared-1'), { email, email_subscribe: 'subscribed' });
    await shows(ids('shared-2'), { email, email_subscribe: 'subscribed' });
    await track({
      attributes: [{ external_id: 'shared-1', email_subscribe: 'unsubscribed', push_subscribe: 'opted_in' }],
    });
    await shows(ids('shared-2'), { email_subscribe: 'unsubscribed', push_subscribe: 'subscribed' });
    await shows(ids('shared-1'), { email_subscribe: 'unsubscribed', push_subscribe: 'opted_in' });
    await track({ attributes: [{ external_id: 'shared-3', email }] });
    await shows(ids('shared-3'), { email, email_subscribe: 'unsubscribed' });
  });

  test.each(['email', 'sms', 'whatsapp'] as const)(
    'the state of an %s group is shared by everyone on its address',
    async (channel) => {
      const group = await createGroup(fleet.pool, fleet.workspace.id, channel);
      const address: Record<string, Json> =
        channel === 'email'
          ? { email: 'group@example.com' }
          : { phone: channel === 'sms' ? '+442071838750' : '+442071838751' };
      const [one, two] = [`${channel}-1`, `${channel}-2`];
      await track({ attributes: [one, two].map((external_id) => ({ external_id, ...address })) });
      for (const external_id of [one, two]) await shows(ids(external_id), address);
      for (const [subscription_state, status] of [
        ['subscribed', 'Subscribed'],
        ['unsubscribed', 'Unsubscribed'],
      ] as const) {
        await track({
          attributes: [
            { external_id: one, subscription_groups: [{ subscription_group_id: group, subscription_state }] },
          ],
        });
        const expected = { subscription_groups: [{ id: group, name: `${channel} news`, channel, status }] };
        for (const external_id of [one, two]) await shows(ids(external_id), expected);
      }
    },
  );

  test('push tokens: of a user, and imported ones as anonymous profiles', async () => {
    const token = (name: string) => ({ app_id: 'app', token: name, device_id: `device-${name}` });
    await track({ attributes: [{ external_id: 'pushed', push_tokens: [token('own')] }] });
    await shows(ids('pushed'), {
      push_tokens: [{ app: 'app', token: 'own', device_id: 'device-own' }],
      devices: [{ device_id: 'device-own' }],
    });
    await track({
      attributes: [{ push_token_import: true, push_tokens: [token('own'), token('a'), token('b')] }],
    });
    const imported = await shows({ device_id: 'device-a' }, { devices: [{ device_id: 'device-a' }] });
    expect(imported).not.toHaveProperty('external_id');
    await shows({ device_id: 'device-b' }, {});
    await shows({ device_id: 'device-own' }, { external_id: 'pushed' });
  });

  test('every processed object is counted against usage', async () => {
    const workspace = await createWorkspace(fleet.pool, 'counted');
    const external_id = 'counted';
    await track(
      {
        attributes: [
          { external_id, n: 1 },
          { external_id, n: 2 },
        ],
        events: [
          { external_id, name: 'seen', time },
          { external_id, name: 'seen', time: 'never' },
        ],
        purchases: [{ external_id, product_id: 'a', currency: 'USD', price: 1, quantity: 3, time }],
      },
      workspace.key,
    );
    const counted = async () => {
      const { rows } = await fleet.pool.query(
        'select sum(attributes)::int as attributes, sum(events)::int as events, sum(purchases)::int as purchases from usage where workspace_id = $1',
        [workspace.id],
      );
      expect(rows).toEqual([{ attributes: 2, events: 1, purchases: 1 }]);
      return true;
    };
    await waitUntil(counted, { what: 'the usage' });
  });

  test('workspaces know nothing of each other', async () => {
    const other = await createWorkspace(fleet.pool, 'other');
    await track({ attributes: [{ external_id: 'same', n: 'ours' }] });
    await track({ attributes: [{ external_id: 'same', n: 'theirs' }] }, other.key);
    await shows(ids('same'), { custom_attributes: { n: 'ours' } });
    const theirs = () =>
      send(fleet.edges[0]!.port, { path: '/users/export/ids', key: other.key, json: ids('same') });
    await waitUntil(async () => (await theirs()).body.users.length === 1, { what: 'the other workspace' });
    expect((await theirs()).body.users[0].custom_attributes).toEqual({ n: 'theirs' });
  });
});
