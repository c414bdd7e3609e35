import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';
import { ids, journey, time } from './scene.ts';

describe.each(eitherBackend)('tracked data is read back, with the queue in %s', (backend) => {
  const { fleet, track, shows } = journey(backend);

  test('standard attributes are stored, and null removes one', async () => {
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

  test('custom attributes of every type are stored, and null removes one', async () => {
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

  test('inc, add, remove, _merge_objects, $add, $update and $remove are applied in order', async () => {
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

  test('events and purchases are stored, equal ones separately, and future times as now', async () => {
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

  test('attributes of a request are applied first, then events, then purchases', async () => {
    const user_alias = { alias_name: 'order', alias_label: 'journey' };
    await track({
      purchases: [{ user_alias, product_id: 'book', currency: 'USD', price: 1, time }],
      events: [{ user_alias, name: 'seen', time }],
      attributes: [{ user_alias, _update_existing_only: false, n: 1 }],
    });
    // Event and purchase create no profile for an alias: they use the one that the attributes create.
    await shows(
      { user_aliases: [user_alias] },
      {
        custom_attributes: { n: 1 },
        custom_events: [{ name: 'seen', first: time, last: time, count: 1 }],
        purchases: [{ name: 'book', first: time, last: time, count: 1 }],
      },
    );
  });

  test('valid objects of a request are stored if others are invalid', async () => {
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

  test('an email state is shared by all users of the address', async () => {
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
    'the state of an %s group is shared by all users of its address',
    async (channel) => {
      const group = await createGroup(fleet().pool, fleet().workspace.id, channel);
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

  test('every processed object is counted against usage', async () => {
    const workspace = await createWorkspace(fleet().pool, 'counted');
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
      const { rows } = await fleet().pool.query(
        'select sum(attributes)::int as attributes, sum(events)::int as events, sum(purchases)::int as purchases from usage where workspace_id = $1',
        [workspace.id],
      );
      expect(rows).toEqual([{ attributes: 2, events: 1, purchases: 1 }]);
      return true;
    };
    await waitUntil(counted, { what: 'the usage' });
  });
});
