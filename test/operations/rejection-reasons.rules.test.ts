import { expect, test } from 'vitest';
import { BLOCKED } from '../../src/operations/operation.ts';
import { causeOf, rejectionReasons } from '../../src/operations/rejection-reasons.ts';
import { MASK } from '../../src/profile/masked.ts';
import { planner } from './plan.ts';

const x = 'x'.repeat(256);

/** Error texts as clients get them, with their reason and field. */
const texts: [text: string, reason: string, field: string][] = [
  ["'name' is required", 'required', 'name'],
  ["'email' or 'phone' is required", 'required', 'email|phone'],
  ["'prioritization' is required with 'email'", 'required', 'prioritization'],
  ["'time' is not valid: it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ", 'invalid', 'time'],
  ["The value provided for the 'email' field is not a valid email.", 'invalid', 'email'],
  ["Invalid 'properties' field", 'invalid', 'properties'],
  ["'gender' is not valid: it must be 'M', 'F', 'O', 'N', 'P' or null", 'invalid', 'gender'],
  ["'price' is not valid: it must be a number", 'wrong_type', 'price'],
  ["each element of 'events' must be an object", 'wrong_type', ''],
  [
    "external_ids[3]: each element of 'external_ids' must be a non-empty string",
    'wrong_type',
    'external_ids',
  ],
  ["'external_id' must be fewer than 988 bytes", 'too_large', 'external_id'],
  ['the custom attributes are too large: 300000 bytes, limit 262144 bytes', 'too_large', ''],
  [
    'too many objects for this user: at most 1000 objects per request. Send the rest in another request.',
    'too_many',
    '',
  ],
  ["'push_tokens' is not valid: it must have at most 100 elements", 'too_many', 'push_tokens'],
  ["'a.b[3].c' is not valid: it must not contain the character \\u0000", 'unstorable', 'a.b[].c'],
  [
    "'subscription_groups' is not valid: no subscription group has the id 4711",
    'unknown_group',
    'subscription_groups',
  ],
  ["'new_external_id' must differ from 'current_external_id'", 'conflict', 'new_external_id'],
  [BLOCKED, 'blocked', 'external_id'],
  ["no user goes by the current_external_id 'ada'", 'unknown_user', ''],
  ["the external_id 'ada' is not deprecated: a user goes by it", 'conflict', ''],
  ['new_external_id is already in use', 'in_use', ''],
  ["'ada@example.com' is not valid: it must be a string", 'wrong_type', MASK],
  ['a text that no release has written', 'other', ''],
];

test.each(texts)('%s: the reason is %s, and the field is %j', (text, reason, field) => {
  expect(causeOf({ type: text })).toEqual({ reason, field });
});

test('every reason belongs to an error text', () => {
  expect(new Set(texts.map(([, reason]) => reason))).toEqual(new Set(Object.keys(rejectionReasons)));
});

test('no error text of /users/track has the reason "other"', () => {
  const { plan } = planner();
  const event = { external_id: 'ada', name: 'seen', time: '2026-01-30T08:00:00Z' };
  const { body } = plan({
    attributes: [
      null,
      {},
      { external_id: 'a'.repeat(1000) },
      { external_id: 'ada', email: 'no address' },
      { external_id: 'ada', points: { inc: 'one' } },
      { external_id: 'ada', '': 1 },
      { external_id: 'ada', subscription_groups: [{ subscription_group_id: 'none' }] },
      { external_id: 'ada', push_tokens: 'none' },
      { push_token_import: true, external_id: 'ada' },
      { external_id: 'ada', note: 'a\u0000b' },
      { external_id: 'ada', big: 2 ** 53 },
    ],
    events: [
      { ...event, name: 7 },
      { ...event, time: 'soon' },
      { ...event, properties: 'none' },
    ],
    purchases: [
      { ...event, product_id: x },
      { ...event, product_id: 'book', currency: 'EURO', price: 1 },
    ],
  });
  expect(body.errors!.length).toBeGreaterThan(12);
  expect(body.errors!.filter((entry) => causeOf(entry).reason === 'other')).toEqual([]);
});
