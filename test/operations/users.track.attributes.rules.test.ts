import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { now, type Objects, planner } from './plan.ts';

const group = uuidv7();
const { attributes, plan } = planner('service_id', { hasGroup: (id) => id === group });
const ada = (object: Objects) => attributes({ external_id: 'ada', ...object });

describe('standard attributes are accepted by name and rule', () => {
  test.each<[string, Json, Objects]>([
    ['email', 'Ada@Example.com', { email: 'ada@example.com' }],
    ['phone', '(415) 555-2671', { phone: '+14155552671', phone_valid: true }],
    ['first_name', 'Ada', { first_name: 'Ada' }],
    ['last_name', 'Lovelace', { last_name: 'Lovelace' }],
    ['gender', 'F', { gender: 'F' }],
    ['dob', '1985-12-10', { dob: '1985-12-10' }],
    ['home_city', 'London', { home_city: 'London' }],
    ['country', 'Australia', { country: 'AU' }],
    ['language', 'en', { language: 'en' }],
    ['time_zone', 'America/New_York', { time_zone: 'America/New_York' }],
    ['image_url', 'https://example.com/a.png', { image_url: 'https://example.com/a.png' }],
    ['current_location', { longitude: 1, latitude: 2 }, { longitude: 1, latitude: 2 }],
    ['date_of_first_session', '2026-01-01', { date_of_first_session: '2026-01-01T00:00:00.000Z' }],
    ['date_of_last_session', '2099-01-01', { date_of_last_session: new Date(now).toISOString() }],
    [
      'marked_email_as_spam_at',
      '2026-01-02T03:04:05Z',
      { marked_email_as_spam_at: '2026-01-02T03:04:05.000Z' },
    ],
    ['email_open_tracking_disabled', true, { email_open_tracking_disabled: true }],
    ['email_click_tracking_disabled', false, { email_click_tracking_disabled: false }],
    ['facebook', { id: '1', num_friends: 2 }, { facebook: { id: '1', num_friends: 2 } }],
    ['twitter', { id: 1, screen_name: 'ada' }, { twitter: { id: 1, screen_name: 'ada' } }],
  ])('%s', (name, value, standard) => {
    expect(ada({ [name]: value })).toMatchObject({ standard });
    expect(ada({ [name]: value })).not.toHaveProperty('set');
  });

  test.each(['email', 'phone', 'first_name', 'dob', 'gender', 'current_location', 'facebook'])(
    'null removes %s',
    (name) => {
      const { standard } = ada({ [name]: null }) as { standard: object };
      expect(new Set(Object.values(standard))).toEqual(new Set([null]));
    },
  );

  test('names are case-sensitive: any other spelling is a custom attribute', () => {
    expect(ada({ First_Name: 'Ada' })).toMatchObject({ set: { First_Name: 'Ada' } });
  });

  test.each<[string, Json, string | RegExp]>([
    ['email', 'ada@nowhere', "The value provided for the 'email' field is not a valid email."],
    ['email', 5, "The value provided for the 'email' field is not a valid email."],
    ['email_subscribe', 'maybe', /^'email_subscribe' must be/],
  ])('an invalid %s rejects the object: %j', (name, value, text) => {
    expect(ada({ [name]: value })).toMatch(text);
  });

  test('a rejected object leaves the profile unchanged', () => {
    const { status, objects } = plan({ attributes: [{ external_id: 'ada', first_name: 'Ada', email: 'x' }] });
    expect({ status, objects }).toEqual({ status: 400, objects: [] });
  });
});

describe('custom attributes of every type', () => {
  test.each<[string, Json, Json]>([
    ['string', 'blue', 'blue'],
    ['string of 255 characters', 'é'.repeat(255), 'é'.repeat(255)],
    ['boolean', false, false],
    ['integer', 7, 7],
    ['float', 1.5, 1.5],
    ['date, as it was sent', '2026-01-30T08:00:00Z', '2026-01-30T08:00:00Z'],
    ['array of strings, each once', ['a', 'b', 'a'], ['b', 'a']],
    ['empty array', [], []],
    ['nested object', { a: { b: [1, 'c'] } }, { a: { b: [1, 'c'] } }],
    ['nested object with a $time', { at: { $time: '2026-01-30' } }, { at: '2026-01-30T00:00:00.000Z' }],
    ['array of objects', [{ id: 1 }, { id: 2 }], [{ id: 1 }, { id: 2 }]],
    ['null, which removes', null, null],
  ])('%s', (_type, value, stored) => {
    expect(ada({ custom: value })).toMatchObject({ set: { custom: stored } });
  });

  test.each<[string, Objects, Objects]>([
    ['inc', { n: { inc: -2 } }, { n: { inc: -2 } }],
    ['add and remove', { n: { add: ['a'], remove: ['b'] } }, { n: { array: { add: ['a'], remove: ['b'] } } }],
    ['_merge_objects', { n: { a: 1 }, _merge_objects: true }, { n: { merge: { a: 1 } } }],
    ['$add', { n: { $add: [{ id: 1 }] } }, { n: { objects: { add: [{ id: 1 }], merge: false } } }],
    [
      '$update',
      {
        n: { $update: [{ $identifier_key: 'id', $identifier_value: 1, $new_object: { a: 2 } }] },
        _merge_objects: true,
      },
      { n: { objects: { update: [{ key: 'id', value: 1, new_object: { a: 2 } }], merge: true } } },
    ],
    [
      '$remove',
      { n: { $remove: [{ $identifier_key: 'id', $identifier_value: 1 }] } },
      { n: { objects: { remove: [{ key: 'id', value: 1 }], merge: false } } },
    ],
  ])('the operation %s', (_operation, object, change) => {
    expect(ada(object)).toMatchObject({ change });
    expect(ada(object)).not.toHaveProperty('set');
  });

  test.each<[string, Objects, RegExp]>([
    [
      'an array of mixed kinds',
      { custom: [1, { a: 1 }] },
      /an array must hold strings, numbers and booleans, or only objects/,
    ],
    [
      'an object over 100 KB',
      { custom: Object.fromEntries(Array.from({ length: 450 }, (_, i) => [`k${i}`, 'x'.repeat(250)])) },
      /at most 102400 bytes of JSON/,
    ],
    ['an inc that is not a number', { custom: { inc: '1' } }, /'inc' must be a number/],
  ])('%s rejects the object', (_what, object, text) => {
    expect(ada(object)).toMatch(text);
  });

  test('an invalid value inside an object drops only that attribute', () => {
    expect(ada({ bad: { at: { $time: 'soon' } }, good: 1 })).toMatchObject({ set: { good: 1 } });
    expect(ada({ bad: { 'a.b': 1 }, good: 1 })).not.toHaveProperty('set.bad');
  });
});

describe('subscription states', () => {
  test.each(['subscribed', 'unsubscribed', 'opted_in'])('email and push may be %s', (state) => {
    expect(ada({ email_subscribe: state, push_subscribe: state })).toMatchObject({
      email_subscribe: state,
      push_subscribe: state,
    });
  });

  test.each(['email_subscribe', 'push_subscribe'])('%s has no other state', (name) => {
    for (const value of ['yes', '', 'Subscribed', true]) {
      expect(ada({ [name]: value })).toBe(`'${name}' must be 'subscribed', 'unsubscribed', or 'opted_in'`);
    }
  });

  const member = (change: Objects = {}) => ({
    subscription_groups: [{ subscription_group_id: group, subscription_state: 'subscribed', ...change }],
  });

  test('groups are joined and left by id and state', () => {
    expect(ada(member())).toMatchObject(member());
    expect(ada(member({ subscription_state: 'unsubscribed', use_double_opt_in_logic: true }))).toMatchObject(
      member({ subscription_state: 'unsubscribed' }),
    );
  });

  test.each<[string, Objects, RegExp]>([
    [
      'an id that is not a UUID',
      { subscription_group_id: 'news' },
      /must be the UUID of a subscription group/,
    ],
    ['no id', { subscription_group_id: null }, /must be the UUID of a subscription group/],
    ['an unknown group', { subscription_group_id: uuidv7() }, /no subscription group has the id/],
    ['another state', { subscription_state: 'opted_in' }, /must be 'subscribed' or 'unsubscribed'/],
  ])('%s rejects the object', (_what, change, text) => {
    expect(ada(member(change))).toMatch(text);
  });
});
