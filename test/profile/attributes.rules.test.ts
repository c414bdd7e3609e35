import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { normalizeAttributes } from '../../src/profile/attributes.ts';
import type { Json } from '../../src/profile/json.ts';
import { context, deltaOf, errorOf } from './normalized.ts';

describe('a standard attribute is stored', () => {
  test.each<[string, Record<string, Json>, object]>([
    [
      'email, without the white space around it',
      { email: ' Ada@Example.com\n' },
      { email: 'ada@example.com' },
    ],
    ['email, lowered', { email: 'Ada@Example.com' }, { email: 'ada@example.com' }],
    ['phone, as E.164', { phone: '(415) 555-2671' }, { phone: '+14155552671', phone_valid: true }],
    [
      'phone in full-width digits, as E.164',
      { phone: '+\uff114155552671' },
      { phone: '+14155552671', phone_valid: true },
    ],
    ['phone, sent as an integer', { phone: 4155552671 }, { phone: '+14155552671', phone_valid: true }],
    ['phone that cannot exist, and marked', { phone: '+12345' }, { phone: '+12345', phone_valid: false }],
    ['first_name', { first_name: 'Ada' }, { first_name: 'Ada' }],
    ['last_name that is empty', { last_name: '' }, { last_name: '' }],
    ['home_city', { home_city: 'London' }, { home_city: 'London' }],
    ['image_url longer than other texts', { image_url: 'u'.repeat(2048) }, { image_url: 'u'.repeat(2048) }],
    ['gender', { gender: 'F' }, { gender: 'F' }],
    ['gender in lower case', { gender: 'p' }, { gender: 'P' }],
    ['gender as a word', { gender: 'male' }, { gender: 'M' }],
    ['gender as a word in any case', { gender: 'FeMale' }, { gender: 'F' }],
    ['gender as a word for O, N and P', { gender: 'Prefer not to say' }, { gender: 'P' }],
    ['dob', { dob: '1815-12-10' }, { dob: '1815-12-10' }],
    ['dob of an ISO date-time, as written', { dob: '1815-12-10T00:00:00.000Z' }, { dob: '1815-12-10' }],
    ['dob with a zone, as written', { dob: '1815-12-10T23:30:00-05:00' }, { dob: '1815-12-10' }],
    ['dob with a space for the T', { dob: '1815-12-10 08:00:00' }, { dob: '1815-12-10' }],
    ['country by name', { country: 'Australia' }, { country: 'AU' }],
    ['language', { language: 'pt-BR' }, { language: 'pt' }],
    ['time_zone', { time_zone: 'Eastern Time (US & Canada)' }, { time_zone: 'America/New_York' }],
    [
      'current_location',
      { current_location: { latitude: 51.5, longitude: -0.1 } },
      { latitude: 51.5, longitude: -0.1 },
    ],
    [
      'current_location in numeric strings',
      { current_location: { latitude: '51.5', longitude: '-0.1' } },
      { latitude: 51.5, longitude: -0.1 },
    ],
    [
      'date_of_first_session, in UTC',
      { date_of_first_session: '2026-01-01 01:00:00 +01:00' },
      { date_of_first_session: '2026-01-01T00:00:00.000Z' },
    ],
    [
      'date_of_last_session in the future, as now',
      { date_of_last_session: '2030-01-01' },
      { date_of_last_session: '2026-01-31T12:00:00.000Z' },
    ],
    [
      'marked_email_as_spam_at',
      { marked_email_as_spam_at: '2026-01-01' },
      { marked_email_as_spam_at: '2026-01-01T00:00:00.000Z' },
    ],
    [
      'the tracking switches',
      { email_open_tracking_disabled: true, email_click_tracking_disabled: false },
      { email_open_tracking_disabled: true, email_click_tracking_disabled: false },
    ],
    [
      'facebook',
      { facebook: { id: '1', likes: ['a'], num_friends: 2, x: {} } },
      { facebook: { id: '1', likes: ['a'], num_friends: 2, x: {} } },
    ],
    [
      'twitter',
      { twitter: { id: 1, screen_name: 'ada', followers_count: 1, friends_count: null, statuses_count: 0 } },
      { twitter: { id: 1, screen_name: 'ada', followers_count: 1, friends_count: null, statuses_count: 0 } },
    ],
  ])('%s', (_rule, object, standard) => {
    expect(deltaOf(object)).toEqual({ standard });
  });
});

test('null removes a standard attribute', () => {
  const names = [
    ...['email', 'phone', 'first_name', 'last_name', 'home_city', 'image_url', 'gender', 'dob', 'country'],
    ...['language', 'time_zone', 'date_of_first_session', 'date_of_last_session', 'marked_email_as_spam_at'],
    ...['email_open_tracking_disabled', 'email_click_tracking_disabled', 'facebook', 'twitter'],
  ];
  const removed = Object.fromEntries(names.map((name) => [name, null]));
  expect(deltaOf({ ...removed, current_location: null })).toEqual({
    standard: { ...removed, phone_valid: null, latitude: null, longitude: null },
  });
});

test.each<[string, Json]>([
  ['time_zone', 'Mars/Olympus'],
  ['time_zone', 5],
  ['language', 'xx'],
  ['language', {}],
])('an unknown %s (%j) is dropped, and the other attributes are stored', (name, value) => {
  expect(deltaOf({ [name]: value, first_name: 'Ada', plan: 'pro' })).toEqual({
    standard: { first_name: 'Ada' },
    set: { plan: 'pro' },
  });
});

test('an empty email or phone is ignored', () => {
  expect(deltaOf({ email: '', phone: '', plan: 'pro' })).toEqual({ set: { plan: 'pro' } });
});

test('identifiers and switches are not stored as attributes', () => {
  const object = {
    external_id: 'ada',
    user_alias: { alias_name: 'a', alias_label: 'b' },
    service_id: '0123456789abcdef01234567',
    app_id: 'app',
    bio: 'mathematician',
    _merge_objects: false,
    _update_existing_only: true,
    push_token_import: false,
  };
  expect(deltaOf(object)).toEqual({});
  expect(deltaOf({ _merge_objects: null, _update_existing_only: null })).toEqual({});
});

test('the service id has its wire name', () => {
  const result = normalizeAttributes(
    { braze_id: '1', service_id: 'x' },
    { ...context, serviceIdField: 'braze_id' },
  );
  expect(result).toEqual({ delta: { set: { service_id: 'x' } } });
});

test('the sent object is not modified', () => {
  const object = { prefs: { at: { $time: '2026-01-31' } }, tags: ['a', 'a'], email: 'A@Example.com' };
  const before = structuredClone(object);
  deltaOf(object);
  expect(object).toEqual(before);
});

test('every JSON value is handled without an exception', () => {
  const names = fc.constantFrom(
    ...[
      'email',
      'phone',
      'gender',
      'dob',
      'country',
      'language',
      'time_zone',
      'current_location',
      'facebook',
    ],
    ...[
      'date_of_first_session',
      'push_tokens',
      'subscription_groups',
      'push_subscribe',
      '_merge_objects',
      'x',
    ],
    ...['__proto__', 'constructor', 'push_token_import', ''],
  );
  const operations = fc.constantFrom('inc', 'add', 'remove', '$add', '$update', '$remove', '$time', 'a');
  const values = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      // JSON writes -0 as 0.
      fc.jsonValue({ maxDepth: 2 }).map((value) => JSON.parse(JSON.stringify(value))),
      fc.constantFrom('2026-01-31', '+14155552671', 'x'.repeat(300), 1e308, 2 ** 60),
      fc.dictionary(operations, tie('value'), { maxKeys: 3 }),
      fc.array(tie('value'), { maxLength: 3 }),
    ),
  })).value as fc.Arbitrary<Json>;
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.oneof(names, fc.string()), values)), (entries) => {
      const result = normalizeAttributes(Object.fromEntries(entries), context);
      if ('error' in result) expect(result.error).toBeTypeOf('string');
      else expect(JSON.parse(JSON.stringify(result.delta))).toEqual(result.delta);
    }),
    { numRuns: 1000 },
  );
});

test('values that nest 100,000 deep cause no exception', () => {
  const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000));
  for (const name of ['x', 'facebook', 'push_tokens', 'subscription_groups', 'current_location', 'email']) {
    normalizeAttributes({ [name]: deep }, context);
    normalizeAttributes({ [name]: { a: deep }, _merge_objects: true }, context);
    normalizeAttributes({ [name]: { $add: [{ a: deep }] } }, context);
  }
});

describe('G8: the size of one object is limited', () => {
  const text = 'x'.repeat(250);
  const many = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`name${index}`, text]));
  const tokens = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ app_id: 'app', token: `token${index}` }));

  test('by all its custom attributes together', () => {
    expect(errorOf(many(950))).toBeUndefined();
    expect(errorOf(many(1000))).toMatch(
      /^the custom attributes are too large: 2\d{5} bytes, limit 262144 bytes\. Send fewer or shorter attributes\. /,
    );
  });

  test('by the number of values, even if their text is short', () => {
    const empties = (count: number) => Array.from({ length: count }, () => ({}));
    const lists = (count: number) => ({ one: empties(count), other: empties(count) });
    expect(errorOf(lists(16_000))).toBeUndefined();
    expect(errorOf(lists(17_000))).toContain('limit 262144 bytes');
  });

  test('far above the size of real users', () => {
    const texts = Object.fromEntries(
      Array.from({ length: 300 }, (_, index) => [`attribute ${index}`, 'é'.repeat(127)]),
    );
    const cart = Array.from({ length: 500 }, (_, id) => ({
      id,
      name: 'x'.repeat(30),
      price: 1.5,
      sold: true,
    }));
    expect(
      errorOf({ ...texts, cart, wishes: cart, tags: cart.map(({ id }) => `tag ${id}`) }),
    ).toBeUndefined();
  });

  test('by its push tokens', () => {
    expect(errorOf({ push_tokens: tokens(100) })).toBeUndefined();
    expect(errorOf({ push_tokens: tokens(101) })).toBe(
      "'push_tokens' is not valid: it must have at most 100 elements",
    );
  });

  test('by the amount that an import writes to each new user', () => {
    const sent = { push_token_import: true, push_tokens: tokens(100) };
    expect(errorOf({ ...sent, ...many(9) })).toBeUndefined();
    expect(errorOf({ ...sent, ...many(10) })).toMatch(
      /^'push_tokens' is not valid: the custom attributes of all tokens together are too large: 2\d{5} bytes, limit 262144 bytes\. /,
    );
  });
});
