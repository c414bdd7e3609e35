import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { fileOf, readRows, zipOf } from './scene.ts';

const group = '019c13ec-a2e2-7b61-8f0c-55a3d7000001';

/** https://www.braze.com/docs/user_guide/audience/manage_audience/import_users/csv_import/ */
describe('braze-user-import', () => {
  const vendor = 'braze-user-import';

  test('other headers are custom attributes; TRUE is a boolean; blanks are ignored', async () => {
    const file = fileOf(
      'users.csv',
      'external_id,first_name,dob,shoe_size,vip,last_name\n10,Ada,1980-12-21,38.5,TRUE,\n',
    );
    expect((await readRows(file, { vendor })).sent).toEqual([
      { external_id: '10', first_name: 'Ada', dob: '1980-12-21', shoe_size: 38.5, vip: true },
    ]);
  });

  test('user_alias_name and user_alias_label name a user, who is created if needed', async () => {
    const file = fileOf('users.csv', 'user_alias_name,user_alias_label,last_name\n182,crm,Smith\n');
    const { sent, accepted } = await readRows(file, { vendor });
    expect(sent).toEqual([
      {
        user_alias: { alias_name: '182', alias_label: 'crm' },
        last_name: 'Smith',
        _update_existing_only: false,
      },
    ]);
    expect(accepted[0]).not.toHaveProperty('create', false);
  });

  test('braze_id updates an existing user', async () => {
    const file = fileOf('users.csv', 'braze_id,plan\n0123456789abcdef01234567,pro\n');
    const { accepted } = await readRows(file, { vendor });
    expect(accepted).toMatchObject([
      { identifier: { service_id: '0123456789abcdef01234567' }, create: false },
    ]);
  });

  test('subscription_group_id and subscription_state set one state of the row', async () => {
    const header = 'external_id,subscription_group_id,subscription_state,email_subscribe\n';
    const file = fileOf('users.csv', `${header}a,${group},subscribed,opted_in\nb,,,\n`);
    const { sent, accepted } = await readRows(file, { vendor });
    expect(sent).toEqual([
      {
        ...{ external_id: 'a', email_subscribe: 'opted_in' },
        subscription_groups: [{ subscription_group_id: group, subscription_state: 'subscribed' }],
      },
      { external_id: 'b' },
    ]);
    expect(accepted).toHaveLength(2);
  });

  test('events have name, time, and a column <event>.properties.<property> for each property', async () => {
    const header = 'external_id,name,time,rented.properties.title,left.properties.why\n';
    const file = fileOf(
      'events.csv',
      `${header}a,rented,2026-01-31T12:00:00Z,Up,\nb,left,2026-01-31T12:00:00Z,x,late\n`,
    );
    expect((await readRows(file, { vendor, type: 'events' })).accepted).toMatchObject([
      { kind: 'events', name: 'rented', properties: { title: 'Up' } },
      { kind: 'events', name: 'left', properties: { why: 'late' } },
    ]);
  });
});

/** https://www.braze.com/docs/api/endpoints/export/user_data/post_users_segment: files of an object on each line, zipped. */
describe('braze-segment-export', () => {
  const vendor = 'braze-segment-export';
  const ada = {
    ...{
      created_at: '2020-07-10 15:00:00.000 UTC',
      external_id: 'ada',
      braze_id: '5fbd99bac125ca40511f2cb1',
      random_bucket: 2365,
    },
    user_aliases: [{ alias_name: 'c-1', alias_label: 'cookie' }],
    ...{
      first_name: 'Ada',
      email: 'ada@example.com',
      country: 'GB',
      gender: 'F',
      last_coordinates: [41.84157, -87.8352],
    },
    ...{ email_subscribe: 'opted_in', total_revenue: 65, phone: null },
    custom_attributes: { loyalty_points: 17, brands: ['A'], email: 'another@example.com' },
    custom_events: [
      { name: 'Loyalty', first: '2021-06-28T17:02:43.032Z', last: '2021-06-28T17:02:43.032Z', count: 1 },
    ],
    purchases: [
      { name: 'item_40834', first: '2021-09-05T03:45:50.540Z', last: '2022-06-03T17:30:41.201Z', count: 10 },
    ],
    push_tokens: [{ app: 'My App', platform: 'iOS', token: '12345abcd' }],
  };
  const visitor = {
    user_aliases: [{ alias_name: 'v', alias_label: 'cookie' }],
    custom_attributes: { plan: 'free' },
  };
  const lines = (...users: object[]) => users.map((user) => `${JSON.stringify(user)}\n`).join('');

  test('every file of the archive is read, by name: attributes, place and aliases of each user', async () => {
    const files = [
      { name: 'b.txt', content: lines(visitor) },
      { name: 'a.txt', content: lines(ada) },
      { name: '__MACOSX/a.txt', content: 'x' },
    ];
    const file = fileOf('114f0226.zip', zipOf(files));
    const { sent, accepted, refused } = await readRows(file, { vendor, layout: 'ndjson' });
    expect(refused).toEqual([]);
    expect(sent).toEqual([
      {
        ...{ external_id: 'ada', first_name: 'Ada', email: 'ada@example.com', country: 'GB', gender: 'F' },
        ...{ email_subscribe: 'opted_in', loyalty_points: 17, brands: ['A'] },
        current_location: { longitude: 41.84157, latitude: -87.8352 },
      },
      { external_id: 'ada', alias_name: 'c-1', alias_label: 'cookie' },
      {
        ...{ user_alias: { alias_name: 'v', alias_label: 'cookie' }, plan: 'free' },
        _update_existing_only: false,
      },
    ]);
    expect(accepted.map((object) => (object as { kind: string }).kind)).toEqual([
      'attributes',
      'alias_new',
      'attributes',
    ]);
  });

  test('the form with output_format gzip is read as well', async () => {
    const file = fileOf('114f0226.gz', gzipSync(lines(visitor)));
    expect((await readRows(file, { vendor, layout: 'ndjson' })).sent).toHaveLength(1);
  });
});

/** https://www.braze.com/docs/user_guide/data_and_analytics/braze_currents/event_glossary/customer_behavior_events/ */
describe('braze-currents', () => {
  const read = (...rows: object[]) =>
    readRows(fileOf('events.json', rows.map((row) => `${JSON.stringify(row)}\n`).join('')), {
      ...{ vendor: 'braze-currents', layout: 'ndjson', type: 'events' },
    });
  const time = 1477502783;
  const at = '2016-10-26T17:26:23.000Z';

  test('custom events and purchases as in storage: flat, times in seconds, properties as text', async () => {
    const common = {
      id: 'a1',
      user_id: '0123456789abcdef01234567',
      external_user_id: 'ada',
      app_id: 'app',
      time,
    };
    const { accepted, refused } = await read(
      { ...common, name: 'viewed', properties: '{"page":"home"}', platform: 'ios' },
      { ...common, product_id: 'book', price: 12.5, currency: 'EUR', properties: null },
    );
    expect(refused).toEqual([]);
    expect(accepted).toMatchObject([
      {
        ...{ kind: 'events', identifier: { external_id: 'ada' }, name: 'viewed', time: at, app_id: 'app' },
        properties: { page: 'home' },
      },
      { kind: 'purchases', product_id: 'book', price: 12.5, currency: 'EUR', quantity: 1, time: at },
    ]);
    expect(accepted[0]).not.toHaveProperty('properties.platform');
  });

  test('custom events and purchases as a connector sends them: nested, with event_type', async () => {
    const user = { user_id: '0123456789abcdef01234567', external_user_id: 'ada' };
    const { accepted } = await read(
      {
        event_type: 'users.behaviors.CustomEvent',
        id: 'a',
        time,
        user,
        properties: { app_id: 'app', name: 'viewed', custom_properties: { n: 1 } },
      },
      {
        event_type: 'users.behaviors.Purchase',
        id: 'b',
        time,
        user,
        properties: { product_id: 'book', price: 2, currency: 'USD', purchase_properties: { size: 'L' } },
      },
    );
    expect(accepted).toMatchObject([
      { kind: 'events', name: 'viewed', app_id: 'app', properties: { n: 1 } },
      { kind: 'purchases', product_id: 'book', properties: { size: 'L' } },
    ]);
  });

  test('other events, and events without a known user, are rejected with their rule', async () => {
    const { refused } = await read(
      { event_type: 'users.messages.email.Open', id: 'a', time, external_user_id: 'ada' },
      { id: 'b', user_id: '0123456789abcdef01234567', time, name: 'viewed' },
      { id: 'c', external_user_id: 'ada', time: 'soon', name: 'viewed' },
    );
    expect(refused.map(({ row, field }) => [row, field])).toEqual([
      [1, 'event_type'],
      [2, 'external_id'],
      [3, 'time'],
    ]);
  });

  test('an event_type that is not a text is one rejected row', async () => {
    const { refused } = await read(
      { event_type: { toString: 1 }, id: 'a', time, external_user_id: 'ada' },
      { event_type: 7, id: 'b', time, external_user_id: 'ada' },
    );
    expect(refused.map(({ reason }) => reason)).toEqual([
      expect.stringContaining(`'event_type' is not valid: {"toString":1} cannot be imported`),
      expect.stringContaining(`'event_type' is not valid: 7 cannot be imported`),
    ]);
  });
});
