import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { normalizeAttributes } from '../../src/profile/attributes.ts';
import type { Json } from '../../src/profile/json.ts';
import { deltaOf, errorOf, now } from './normalized.ts';

describe('a standard attribute is stored', () => {
  test.each<[string, Record<string, Json>, object]>([
    ['email, lowered', { email: 'Ada@Example.com' }, { email: 'ada@example.com' }],
    ['phone, as E.164', { phone: '(415) 555-2671' }, { phone: '+14155552671', phone_valid: true }],
    ['phone, sent as an integer', { phone: 4155552671 }, { phone: '+14155552671', phone_valid: true }],
    ['phone that cannot exist, and marked', { phone: '+12345' }, { phone: '+12345', phone_valid: false }],
    ['first_name', { first_name: 'Ada' }, { first_name: 'Ada' }],
    ['last_name that is empty', { last_name: '' }, { last_name: '' }],
    ['home_city', { home_city: 'London' }, { home_city: 'London' }],
    ['image_url longer than other texts', { image_url: 'u'.repeat(2048) }, { image_url: 'u'.repeat(2048) }],
    ['gender', { gender: 'F' }, { gender: 'F' }],
    ['gender in lower case', { gender: 'p' }, { gender: 'P' }],
    ['gender as a word', { gender: 'male' }, { gender: 'M' }],
    ['dob', { dob: '1815-12-10' }, { dob: '1815-12-10' }],
    ['country by name', { country: 'Australia' }, { country: 'AU' }],
    ['country that nobody knows, as null', { country: 'Atlantis' }, { country: null }],
    ['country that is no string, as null', { country: 5 }, { country: null }],
    ['language', { language: 'pt-BR' }, { language: 'pt' }],
    ['time_zone', { time_zone: 'Eastern Time (US & Canada)' }, { time_zone: 'America/New_York' }],
    [
      'current_location',
      { current_location: { latitude: 51.5, longitude: -0.1 } },
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
])('an unknown %s (%j) is not stored, and the other attributes are', (name, value) => {
  expect(deltaOf({ [name]: value, first_name: 'Ada', plan: 'pro' })).toEqual({
    standard: { first_name: 'Ada' },
    set: { plan: 'pro' },
  });
});

describe('a standard attribute refuses the object', () => {
  const email = "The value provided for the 'email' field is not a valid email.";
  const phone = "'phone' is not valid: it must be a phone number in E.164 format";
  const location =
    "'current_location' is not valid: it needs a 'latitude' of -90 to 90 and a 'longitude' of -180 to 180";
  const gender = "'gender' is not valid: it must be 'M', 'F', 'O', 'N', 'P' or null";
  const dob = "'dob' is not valid: it must be a date as YYYY-MM-DD";
  test.each<[string, Json, string]>([
    ['email', 'ada', email],
    ['email', 5, email],
    ['email', ['ada@example.com'], email],
    ['phone', 'n/a', phone],
    ['phone', true, phone],
    ['phone', 1.5, phone],
    ['phone', '1'.repeat(256), phone],
    [
      'first_name',
      'x'.repeat(256),
      "'first_name' is not valid: it must be a string of at most 255 characters",
    ],
    ['last_name', 5, "'last_name' is not valid: it must be a string of at most 255 characters"],
    ['home_city', {}, "'home_city' is not valid: it must be a string of at most 255 characters"],
    [
      'image_url',
      'x'.repeat(2049),
      "'image_url' is not valid: it must be a string of at most 2048 characters",
    ],
    ['gender', 'x', gender],
    ['gender', 'constructor', gender],
    ['gender', 1, gender],
    ['dob', '1815-02-30', dob],
    ['dob', '1815-12-10T00:00:00Z', dob],
    ['dob', '12/10/1815', dob],
    ['dob', 1815, dob],
    ['current_location', { latitude: 1 }, location],
    ['current_location', { longitude: 1 }, location],
    ['current_location', { latitude: 91, longitude: 1 }, location],
    ['current_location', { latitude: 1, longitude: -180.5 }, location],
    ['current_location', { latitude: '1', longitude: 1 }, location],
    ['current_location', [1, 1], location],
    ['date_of_first_session', 'soon', "'date_of_first_session' is not valid: it must be a time in ISO 8601"],
    [
      'date_of_last_session',
      1700000000,
      "'date_of_last_session' is not valid: it must be a time in ISO 8601",
    ],
    [
      'email_open_tracking_disabled',
      'true',
      "'email_open_tracking_disabled' is not valid: it must be a boolean",
    ],
    ['facebook', 'ada', "'facebook' is not valid: it must be an object"],
    ['facebook', { likes: [1] }, "'facebook.likes' is not valid: it must be an array of strings"],
    [
      'facebook',
      { x: 'y'.repeat(102_400) },
      "'facebook' is not valid: it must be at most 102400 bytes of JSON",
    ],
    ['twitter', { followers_count: 1.5 }, "'twitter.followers_count' is not valid: it must be an integer"],
    ['twitter', { id: true }, "'twitter.id' is not valid: it must be a string or an integer"],
    ['email_subscribe', 'maybe', "'email_subscribe' must be 'subscribed', 'unsubscribed', or 'opted_in'"],
    ['push_subscribe', true, "'push_subscribe' must be 'subscribed', 'unsubscribed', or 'opted_in'"],
    ['email_subscription_info', {}, "'email_subscription_info' is not valid: it may not be set"],
    ['_merge_objects', 'true', "'_merge_objects' is not valid: it must be a boolean"],
    ['_update_existing_only', 1, "'_update_existing_only' is not valid: it must be a boolean"],
    ['push_token_import', 'x', "'push_token_import' is not valid: it must be a boolean"],
  ])('%s: %j', (name, value, error) => {
    expect(errorOf({ plan: 'pro', [name]: value })).toBe(error);
  });
});

test('an empty email or phone is none: it changes nothing', () => {
  expect(deltaOf({ email: '', phone: '', plan: 'pro' })).toEqual({ set: { plan: 'pro' } });
});

test('addresses and switches are no attributes', () => {
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

test('the service id goes by its wire name', () => {
  const result = normalizeAttributes({ braze_id: '1', service_id: 'x' }, 'braze_id', now);
  expect(result).toEqual({ delta: { set: { service_id: 'x' } } });
});

test('the sent object is left as it is', () => {
  const object = { prefs: { at: { $time: '2026-01-31' } }, tags: ['a', 'a'], email: 'A@Example.com' };
  const before = structuredClone(object);
  deltaOf(object);
  expect(object).toEqual(before);
});

test('no JSON makes it throw', () => {
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
      fc.jsonValue({ maxDepth: 2 }),
      fc.constantFrom('2026-01-31', '+14155552671', 'x'.repeat(300), 1e308, 2 ** 60),
      fc.dictionary(operations, tie('value'), { maxKeys: 3 }),
      fc.array(tie('value'), { maxLength: 3 }),
    ),
  })).value as fc.Arbitrary<Json>;
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.oneof(names, fc.string()), values)), (entries) => {
      const result = normalizeAttributes(Object.fromEntries(entries), 'service_id', now);
      if ('error' in result) expect(result.error).toBeTypeOf('string');
      else expect(JSON.parse(JSON.stringify(result.delta))).toEqual(result.delta);
    }),
    { numRuns: 1000 },
  );
});

test('values that nest 100,000 deep do not make it throw', () => {
  const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000));
  for (const name of ['x', 'facebook', 'push_tokens', 'subscription_groups', 'current_location', 'email']) {
    normalizeAttributes({ [name]: deep }, 'service_id', now);
    normalizeAttributes({ [name]: { a: deep }, _merge_objects: true }, 'service_id', now);
    normalizeAttributes({ [name]: { $add: [{ a: deep }] } }, 'service_id', now);
  }
});
