import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createGroup } from '../setup/workspace.ts';
import { createStore, type Store } from './in-process.ts';

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.stop());

const time = '2026-01-31T12:00:00.000Z';

/** Returns the exported user with this external id. */
async function read(externalId: string, ...fields: string[]) {
  const { body } = await store.exportIds({ external_ids: [externalId], fields_to_export: fields });
  expect(body.users).toHaveLength(1);
  return body.users[0];
}

describe('fields of an exported user', () => {
  test('every standard attribute by its own name', async () => {
    await store.track({
      attributes: [
        {
          external_id: 'whole',
          first_name: 'Ada',
          last_name: 'Lovelace',
          email: 'Ada.Whole@Example.com',
          phone: '+442071838750',
          gender: 'female',
          dob: '1985-12-10',
          home_city: 'London',
          country: 'GB',
          language: 'en',
          time_zone: 'Europe/London',
          image_url: 'https://example.com/ada.png',
          current_location: { longitude: -0.12, latitude: 51.5 },
          date_of_first_session: '2026-01-01',
          date_of_last_session: '2026-01-02T03:04:05.678+01:00',
          marked_email_as_spam_at: '2026-01-03T00:00:00Z',
          email_open_tracking_disabled: true,
          email_click_tracking_disabled: false,
          facebook: { id: '1', likes: ['maths'], num_friends: 2 },
          twitter: { id: 7, screen_name: 'ada', followers_count: 3 },
        },
      ],
    });
    const { created_at, service_id, random_bucket, ...user } = await read('whole');
    expect(created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(service_id).toMatch(/^[0-9a-f]{24}$/);
    expect(random_bucket).toBeTypeOf('number');
    expect(user).toEqual({
      external_id: 'whole',
      user_aliases: [],
      total_revenue: 0,
      first_name: 'Ada',
      last_name: 'Lovelace',
      email: 'ada.whole@example.com',
      phone: '+442071838750',
      gender: 'F',
      dob: '1985-12-10',
      home_city: 'London',
      country: 'GB',
      language: 'en',
      time_zone: 'Europe/London',
      image_url: 'https://example.com/ada.png',
      last_coordinates: [-0.12, 51.5],
      date_of_first_session: '2026-01-01T00:00:00.000Z',
      date_of_last_session: '2026-01-02T02:04:05.678Z',
      marked_email_as_spam_at: '2026-01-03T00:00:00.000Z',
      email_open_tracking_disabled: true,
      email_click_tracking_disabled: false,
      facebook: { id: '1', likes: ['maths'], num_friends: 2 },
      twitter: { id: 7, screen_name: 'ada', followers_count: 3 },
      email_subscribe: 'subscribed',
      push_subscribe: 'subscribed',
    });
  });

  test('fields without data are omitted', async () => {
    await store.track({ events: [{ external_id: 'bare', name: 'seen', time }] });
    expect(Object.keys(await read('bare'))).toEqual([
      'created_at',
      'external_id',
      'user_aliases',
      'service_id',
      'random_bucket',
      'custom_events',
      'total_revenue',
      'email_subscribe',
      'push_subscribe',
    ]);
  });

  test('the random bucket stays the same and is between 0 and 9999', async () => {
    const ids = Array.from({ length: 50 }, (_, index) => `bucket-${index}`);
    await store.track({ attributes: ids.map((external_id) => ({ external_id, seat: 1 })) });
    const buckets = async () =>
      (await store.exportIds({ external_ids: ids, fields_to_export: ['random_bucket'] })).body.users;
    const first = await buckets();
    expect(await buckets()).toEqual(first);
    for (const { random_bucket } of first) {
      expect(random_bucket).toBeGreaterThanOrEqual(0);
      expect(random_bucket).toBeLessThanOrEqual(9999);
    }
    expect(
      new Set(first.map(({ random_bucket }: { random_bucket: number }) => random_bucket)).size,
    ).toBeGreaterThan(40);
  });

  test('custom attributes of every type, and names like __proto__ as plain data', async () => {
    const custom = JSON.parse(
      '{"n": 1.5, "flag": false, "list": ["a", "b"], "nested": {"a": {"b": [1]}}, "rows": [{"id": 1}], "__proto__": "p", "constructor": "c"}',
    );
    await store.track({
      attributes: [JSON.parse(`{"external_id": "custom", ${JSON.stringify(custom).slice(1)}`)],
    });
    const { body } = await store.exportIds({ external_ids: ['custom'] });
    const shown = JSON.parse(JSON.stringify(body)).users[0].custom_attributes;
    expect(Object.entries(shown).sort()).toEqual(Object.entries(custom).sort());
  });

  test('events as name, first, last and count', async () => {
    const event = (name: string, day: string) => ({
      external_id: 'events',
      name,
      time: `2026-01-${day}T00:00:00Z`,
    });
    await store.track({ events: [event('b', '03'), event('a', '02'), event('b', '01')] });
    await store.track({ events: [event('b', '02')] });
    expect((await read('events')).custom_events).toEqual([
      { name: 'a', first: '2026-01-02T00:00:00.000Z', last: '2026-01-02T00:00:00.000Z', count: 1 },
      { name: 'b', first: '2026-01-01T00:00:00.000Z', last: '2026-01-03T00:00:00.000Z', count: 3 },
    ]);
  });

  test('purchases by product, summed over currencies, quantities counted', async () => {
    const bought = (day: string, [price, currency]: [number, string], quantity: number) => ({
      external_id: 'buyer',
      product_id: 'book',
      currency,
      price,
      quantity,
      time: `2026-01-${day}T00:00:00Z`,
    });
    await store.track({
      purchases: [
        bought('02', [0.1, 'USD'], 3),
        bought('03', [0.2, 'USD'], 1),
        bought('01', [12.5, 'EUR'], 2),
      ],
    });
    const { purchases, total_revenue, revenue } = await read('buyer');
    expect(purchases).toEqual([
      { name: 'book', first: '2026-01-01T00:00:00.000Z', last: '2026-01-03T00:00:00.000Z', count: 6 },
    ]);
    expect({ total_revenue, revenue }).toEqual({ total_revenue: 0.5, revenue: { EUR: 25 } });
  });

  test('amounts of other currencies never enter total_revenue', async () => {
    await store.track({
      purchases: [{ external_id: 'euros', product_id: 'a', currency: 'EUR', price: 1, time }],
    });
    const user = await read('euros');
    expect(user).toMatchObject({ revenue: { EUR: 1 } });
    expect(user).toHaveProperty('total_revenue', 0);
  });

  test('aliases are [] and revenue is 0 without data; other fields are omitted', async () => {
    await store.track({ attributes: [{ external_id: 'with nothing', seat: 1 }] });
    expect(await read('with nothing')).toMatchObject({ user_aliases: [], total_revenue: 0 });
    expect(await read('with nothing', 'user_aliases', 'total_revenue', 'devices')).toEqual({
      user_aliases: [],
      total_revenue: 0,
    });
    expect(await read('with nothing', 'external_id', 'email')).toEqual({ external_id: 'with nothing' });
  });

  test('push tokens and their devices', async () => {
    await store.track({
      attributes: [
        {
          external_id: 'phones',
          push_tokens: [
            { app_id: 'app', token: 'one', device_id: 'device-1' },
            { app_id: 'app', token: 'two', device_id: 'device-1' },
          ],
        },
      ],
    });
    const { push_tokens, devices } = await read('phones');
    expect(push_tokens).toEqual([
      { app: 'app', token: 'one', device_id: 'device-1' },
      { app: 'app', token: 'two', device_id: 'device-1' },
    ]);
    expect(devices).toEqual([{ device_id: 'device-1' }]);
  });

  test('aliases with name and label', async () => {
    const user_alias = { alias_name: 'ada', alias_label: 'forum' };
    await store.track({ attributes: [{ user_alias, _update_existing_only: false, seat: 1 }] });
    const { body } = await store.exportIds({ user_aliases: [user_alias] });
    expect(body.users[0].user_aliases).toEqual([user_alias]);
    expect(body.users[0]).not.toHaveProperty('external_id');
  });
});

describe('subscription states', () => {
  test("the email address's state takes precedence, and has its time", async () => {
    await store.track({
      attributes: [
        { external_id: 'state-1', email: 'state@example.com' },
        { external_id: 'state-2', email: 'state@example.com', email_subscribe: 'unsubscribed' },
      ],
    });
    const user = await read('state-1');
    expect(user.email_subscribe).toBe('unsubscribed');
    expect(Date.parse(user.email_unsubscribed_at)).toBeGreaterThan(Date.now() - 60_000);
    await store.track({ attributes: [{ external_id: 'state-1', email_subscribe: 'opted_in' }] });
    expect(await read('state-2')).toMatchObject({
      email_subscribe: 'opted_in',
      email_opted_in_at: expect.any(String),
    });
    expect(await read('state-2')).not.toHaveProperty('email_unsubscribed_at');
  });

  test('without an address the profile has a state of its own', async () => {
    await store.track({
      attributes: [
        { external_id: 'no-address', email_subscribe: 'opted_in', push_subscribe: 'unsubscribed' },
      ],
    });
    expect(await read('no-address')).toMatchObject({
      email_subscribe: 'opted_in',
      push_subscribe: 'unsubscribed',
    });
  });

  test('a hard bounce is shown', async () => {
    await store.track({ attributes: [{ external_id: 'bounced', email: 'bounced@example.com' }] });
    await store.database.pool.query(
      `insert into email_addresses values ($1, 'bounced@example.com', 'unsubscribed', $2, $2)`,
      [store.workspaceId, time],
    );
    expect(await read('bounced')).toMatchObject({ email_hard_bounced_at: time, email_unsubscribed_at: time });
  });

  test("groups show the address's state, the profile's own without an address", async () => {
    const { pool } = store.database;
    const news = await createGroup(pool, store.workspaceId, 'email', { name: 'News' });
    const texts = await createGroup(pool, store.workspaceId, 'sms', { name: 'Texts' });
    const state = (subscription_group_id: string, subscription_state: string) => ({
      subscription_group_id,
      subscription_state,
    });
    await store.track({
      attributes: [
        { external_id: 'group-1', email: 'groups@example.com', phone: '+442071838751' },
        {
          external_id: 'group-2',
          subscription_groups: [state(news, 'subscribed'), state(texts, 'subscribed')],
        },
        { external_id: 'group-2', email: 'groups@example.com', phone: '+442071838751' },
        { external_id: 'group-1', subscription_groups: [state(news, 'unsubscribed')] },
      ],
    });
    const groups = (newsStatus: string, textsStatus: string) => [
      { id: news, name: 'News', channel: 'email', status: newsStatus },
      { id: texts, name: 'Texts', channel: 'sms', status: textsStatus },
    ];
    for (const user of ['group-1', 'group-2']) {
      expect((await read(user)).subscription_groups).toEqual(groups('Unsubscribed', 'Subscribed'));
    }
    await store.track({
      attributes: [{ external_id: 'group-3', subscription_groups: [state(texts, 'unsubscribed')] }],
    });
    expect((await read('group-3')).subscription_groups).toEqual([
      { id: texts, name: 'Texts', channel: 'sms', status: 'Unsubscribed' },
    ]);
  });

  test('a number that cannot exist shares no state', async () => {
    const { pool } = store.database;
    const group = await createGroup(pool, store.workspaceId, 'whatsapp', { name: 'Chat' });
    await store.track({
      attributes: [
        {
          external_id: 'wrong-1',
          phone: '+1 1',
          subscription_groups: { subscription_group_id: group, subscription_state: 'subscribed' },
        },
        { external_id: 'wrong-2', phone: '+1 1' },
      ],
    });
    expect((await read('wrong-1')).subscription_groups).toHaveLength(1);
    expect(await read('wrong-2')).not.toHaveProperty('subscription_groups');
  });
});
