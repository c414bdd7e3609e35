import { expect, test } from 'vitest';
import type { AcceptedRemove, AcceptedRename, TrackKind } from '../../src/jobs/envelope.ts';
import { usersDelete } from '../../src/operations/users.delete.ts';
import { usersMerge } from '../../src/operations/users.merge.ts';
import type { Json } from '../../src/profile/json.ts';
import { rejectionReasons } from '../../src/profile/refusal.ts';
import { refusalByWorker, removeRefusals, renameRefusals } from '../../src/store/external-id-refusals.ts';
import { identityPlanner } from './identity-plan.ts';
import { planner } from './plan.ts';

const ada = { external_id: 'ada' };
const event = { ...ada, name: 'seen', time: '2026-01-30T08:00:00Z' };
const purchase = { ...event, product_id: 'book', currency: 'EUR', price: 1 };
const group = '018f0000-0000-7000-8000-000000000009';

/** Objects that a rule rejects, with the reason and the field of the rule. */
const refused: [kind: TrackKind, object: Json, reason: string, field: string][] = [
  ['events', null, 'wrong_type', ''],
  ['attributes', {}, 'required', 'external_id|service_id|user_alias|email|phone'],
  ['attributes', { external_id: 'a'.repeat(1000) }, 'too_large', 'external_id'],
  ['attributes', { external_id: true }, 'wrong_type', 'external_id'],
  ['attributes', { service_id: 'none' }, 'invalid', 'service_id'],
  ['attributes', { user_alias: 'ada' }, 'wrong_type', 'user_alias'],
  ['attributes', { user_alias: { alias_name: 'ada' } }, 'wrong_type', 'user_alias.alias_label'],
  ['attributes', { external_id: 'blocked' }, 'blocked', 'external_id'],
  ['attributes', { ...ada, email: 'no address' }, 'invalid', 'email'],
  ['attributes', { ...ada, points: { inc: 'one' } }, 'wrong_type', 'points'],
  ['attributes', { ...ada, cart: [1, {}] }, 'wrong_type', 'cart'],
  ['attributes', { ...ada, cart: { $remove: [{}] } }, 'required', 'cart'],
  ['attributes', { ...ada, cart: { $remove: Array(101).fill({}) } }, 'too_many', 'cart'],
  ['attributes', { ...ada, cart: { a: Array(30_000).fill('four') } }, 'too_large', 'cart'],
  ['attributes', { ...ada, '': 1 }, 'invalid', ''],
  ['attributes', { ...ada, _merge_objects: 1 }, 'wrong_type', '_merge_objects'],
  ['attributes', { ...ada, email_subscribe: 'yes' }, 'invalid', 'email_subscribe'],
  ['attributes', { ...ada, push_tokens: 'none' }, 'wrong_type', 'push_tokens'],
  ['attributes', { ...ada, push_tokens: [{ app_id: 1 }] }, 'wrong_type', 'push_tokens.app_id'],
  ['attributes', { ...ada, push_tokens: [{ app_id: '' }] }, 'invalid', 'push_tokens.app_id'],
  ['attributes', { ...ada, push_tokens: [{ app_id: 'a'.repeat(256) }] }, 'too_large', 'push_tokens.app_id'],
  ['attributes', { ...ada, push_token_import: true }, 'conflict', 'push_token_import'],
  ['attributes', { push_token_import: true }, 'required', 'push_tokens'],
  [
    'attributes',
    { ...ada, subscription_groups: [{ subscription_group_id: group, subscription_state: 'subscribed' }] },
    'unknown_group',
    'subscription_groups',
  ],
  ['attributes', { ...ada, note: ['ok', { text: 'a\u0000b' }] }, 'unstorable', 'note[].text'],
  ['attributes', { ...ada, big: 2 ** 53 }, 'unstorable', 'big'],
  ['events', { ...ada, time: event.time }, 'required', 'name'],
  ['events', { ...event, name: 7 }, 'wrong_type', 'name'],
  ['events', { ...event, name: '' }, 'invalid', 'name'],
  ['events', { ...event, time: 'soon' }, 'invalid', 'time'],
  ['events', { ...event, properties: 'none' }, 'wrong_type', 'properties'],
  ['events', { ...event, properties: [1] }, 'wrong_type', 'properties'],
  ['events', { ...event, properties: { time: 1 } }, 'invalid', 'properties'],
  ['events', { ...event, properties: { $a: 1 } }, 'invalid', 'properties.$a'],
  ['events', { ...event, properties: { a: [1], b: 'x'.repeat(60_000) } }, 'too_large', 'properties'],
  ['purchases', { ...purchase, currency: 'EURO' }, 'invalid', 'currency'],
  ['purchases', { ...purchase, price: 'much' }, 'invalid', 'price'],
  ['purchases', { ...purchase, quantity: 101 }, 'invalid', 'quantity'],
];

const { plan } = planner('service_id', { isBlocked: (id) => id === 'blocked', hasGroup: () => false });

test.each(refused)(
  'a rejected object in %s, %j, has the reason %s and the field %j',
  (...[kind, object, reason, field]) => {
    // A valid object is added, because a request without any lists its rejections in the error instead.
    const { rejected, body } = plan({
      [kind]: [object],
      ...(kind === 'events' ? { attributes: [ada] } : { events: [event] }),
    });
    const [{ type }] = body.errors as [{ type: string }];
    expect(rejected).toEqual([{ type, input_array: kind, index: 0, reason, field }]);
  },
);

test('an answer contains only text, array and position of a rejected object', () => {
  const { body } = plan({ events: [event, { ...event, name: 7 }] });
  expect(Object.keys(body.errors![0]!)).toEqual(['type', 'input_array', 'index']);
  const { body: refusal } = plan({ events: [{ ...event, name: 7 }] });
  expect(Object.keys(refusal.errors![0]!)).toEqual(['type', 'input_array', 'index']);
});

test('identity operations give the reason of an element and of a whole request', () => {
  const deleted = identityPlanner(usersDelete('service_id'))({ external_ids: ['ada', null] });
  expect(deleted.plan!.rejected).toEqual([
    {
      type: "each element of 'external_ids' must be a non-empty string",
      ...{ input_array: 'external_ids', index: 1, reason: 'wrong_type', field: '' },
    },
  ]);
  const merge = { identifier_to_merge: ada, identifier_to_keep: ada, more: 1 };
  const plan = () => usersMerge().plan({} as never, { merge_updates: [merge] });
  expect(plan).toThrow(
    expect.objectContaining({
      entry: 'extraMergeKeys',
      rejected: [expect.objectContaining({ reason: 'conflict', field: 'merge_updates' })],
    }),
  );
});

const object = { id: '', index: 0 };
const rename: AcceptedRename = {
  ...object,
  kind: 'external_id_rename',
  current_external_id: 'ada',
  new_external_id: 'grace',
};
const removal: AcceptedRemove = { ...object, kind: 'external_id_remove', external_id: 'ada' };

test('the text of a worker is mapped back to the rule that it came from', () => {
  const renames = Object.values(renameRefusals).map((of) => of(rename));
  const removals = Object.values(removeRefusals).map((of) => of(removal));
  expect(renames.map(({ error }) => refusalByWorker(rename, error))).toEqual(renames);
  expect(removals.map(({ error }) => refusalByWorker(removal, error))).toEqual(removals);
  const error = 'value out of range';
  expect(refusalByWorker(rename, error)).toEqual({ error, reason: 'other', field: '' });
});

test('every reason belongs to a rule', () => {
  const ofWorkers = Object.values(renameRefusals).map((of) => of(rename).reason);
  const reasons = new Set([...refused.map(([, , reason]) => reason), ...ofWorkers, 'other']);
  expect([...reasons].sort()).toEqual(Object.keys(rejectionReasons).sort());
});
