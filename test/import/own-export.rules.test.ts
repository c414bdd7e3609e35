import { expect, test } from 'vitest';
import { fileOf, readRows } from './scene.ts';

const vendor = 'penstock-export';
const group = '019c13ec-a2e2-7b61-8f0c-55a3d7000001';
const linesOf = (...rows: object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join('');
const tokensOf = (count: number) =>
  Array.from({ length: count }, (_, n) => ({
    app: 'app',
    token: `token ${n}`,
    device_id: `device-${n}00000`,
  }));
const sentOf = (tokens: ReturnType<typeof tokensOf>) =>
  tokens.map(({ app, token, device_id }) => ({ app_id: app, token, device_id }));

test('an exported user becomes attributes, also with more tokens than one object has', async () => {
  const tokens = tokensOf(101);
  const file = fileOf(
    'profiles.ndjson',
    linesOf({
      ...{
        external_id: 'ada',
        service_id: '0123456789abcdef01234567',
        created_at: '2026-01-01T00:00:00.000Z',
      },
      ...{ user_aliases: [{ alias_name: 'al', alias_label: 'crm' }], last_coordinates: [-0.1, 51.5] },
      ...{ custom_attributes: { vip: true }, total_revenue: 5, push_tokens: tokens },
      ...{ email_subscribe: 'subscribed', push_subscribe: 'unsubscribed' },
    }),
  );
  const { sent, refused } = await readRows(file, { vendor, layout: 'ndjson' });
  expect(refused).toEqual([]);
  const [first, last] = [sentOf(tokens.slice(0, 100)), sentOf(tokens.slice(100))];
  expect(sent).toEqual([
    {
      ...{ external_id: 'ada', vip: true, push_subscribe: 'unsubscribed', push_tokens: first },
      current_location: { longitude: -0.1, latitude: 51.5 },
    },
    { external_id: 'ada', alias_name: 'al', alias_label: 'crm' },
    { external_id: 'ada', push_tokens: last },
  ]);
});

test('a user with only one device is created by it; a user without identifier is rejected', async () => {
  const none = { service_id: '0123456789abcdef01234567', user_aliases: [], custom_attributes: { vip: true } };
  const file = fileOf(
    'profiles.ndjson',
    linesOf({ ...none, push_tokens: tokensOf(1) }, { ...none, push_tokens: tokensOf(2) }, none),
  );
  const { sent, refused } = await readRows(file, { vendor, layout: 'ndjson' });
  expect(sent[0]).toEqual({ vip: true, push_tokens: sentOf(tokensOf(1)), push_token_import: true });
  expect(refused.map(({ row }) => row)).toEqual([2, 3]);
});

test('group states apply to aliases and service ids, and states without group to emails', async () => {
  const state = { subscription_group_id: group, subscription_state: 'subscribed' };
  const user_alias = { alias_name: 'al', alias_label: 'crm' };
  const file = fileOf(
    'states.ndjson',
    linesOf(
      { user_alias, ...state },
      { service_id: '0123456789abcdef01234567', ...state },
      { email: 'Ada@example.com', email_subscribe: 'unsubscribed' },
      // A row without a group must not change the state of all email.
      { email: 'ada@example.com', subscription_state: 'unsubscribed' },
      { email_subscribe: 'unsubscribed' },
    ),
  );
  const { accepted, refused } = await readRows(file, {
    ...{ type: 'subscriptions', layout: 'ndjson' },
    caller: { channelOf: () => 'email', hasGroup: () => true },
  });
  expect(accepted).toMatchObject([
    { kind: 'attributes', identifier: { user_alias }, subscription_groups: [state] },
    { kind: 'attributes', identifier: { service_id: '0123456789abcdef01234567' } },
    { kind: 'email_change', email: 'ada@example.com', state: 'unsubscribed' },
  ]);
  expect(refused.map(({ row }) => row)).toEqual([4, 5]);
});
