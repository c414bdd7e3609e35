import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { deltaOf, errorOf } from './normalized.ts';

test.each(['subscribed', 'unsubscribed', 'opted_in'])('email and push state may be %s', (state) => {
  expect(deltaOf({ email_subscribe: state, push_subscribe: state })).toEqual({
    email_subscribe: state,
    push_subscribe: state,
  });
});

test('null in place of a state is ignored', () => {
  expect(deltaOf({ email_subscribe: null, push_subscribe: null, plan: 'pro' })).toEqual({
    set: { plan: 'pro' },
  });
});

test('null in place of an array of groups or tokens is ignored', () => {
  expect(deltaOf({ subscription_groups: null, push_tokens: null, plan: 'pro' })).toEqual({
    set: { plan: 'pro' },
  });
});

describe('subscription groups', () => {
  const id = '0a1b2c3d-0000-4000-8000-00000000000a';
  const group = { subscription_group_id: id, subscription_state: 'subscribed' };

  test('are stored by lower-case id and state; other members are omitted', () => {
    const sent = { ...group, subscription_group_id: id.toUpperCase(), use_double_opt_in_logic: true };
    expect(deltaOf({ subscription_groups: [sent] })).toEqual({ subscription_groups: [group] });
  });
  test('may be one object', () => {
    expect(deltaOf({ subscription_groups: group })).toEqual({ subscription_groups: [group] });
  });
  test('may be empty', () => {
    expect(deltaOf({ subscription_groups: [] })).toEqual({});
  });
  test.each<[Json, string]>([
    ['x', "'subscription_groups' is not valid: it must be an array of objects"],
    [[[]], "'subscription_groups' is not valid: it must be an array of objects"],
    [{}, "'subscription_group_id' is not valid: it must be the UUID of a subscription group"],
    [
      [{ ...group, subscription_group_id: 'news' }],
      "'subscription_group_id' is not valid: it must be the UUID of a subscription group",
    ],
    [[group, { subscription_group_id: id }], "'subscription_state' must be 'subscribed' or 'unsubscribed'"],
    [
      [{ ...group, subscription_state: 'opted_in' }],
      "'subscription_state' must be 'subscribed' or 'unsubscribed'",
    ],
  ])('are rejected as %j', (value, error) => {
    expect(errorOf({ subscription_groups: value })).toBe(error);
  });
});

describe('push tokens', () => {
  const token = { app_id: 'app', token: 'abc', device_id: 'device-1' };

  test('are stored by app, token and device', () => {
    expect(deltaOf({ push_tokens: [{ ...token, x: 1 }] })).toEqual({ push_tokens: [token] });
  });
  test('may be one object', () => {
    expect(deltaOf({ push_tokens: token })).toEqual({ push_tokens: [token] });
  });
  test('without a device get a stable one per app and token', () => {
    const devices = [
      { app_id: 'app', token: 'abc' },
      { app_id: 'app', token: 'abc', device_id: null },
      { app_id: 'appa', token: 'bc' },
      { app_id: 'app', token: 'abd' },
    ].map((sent) => deltaOf({ push_tokens: [sent] }).push_tokens![0]!.device_id);
    expect(devices[0]).toMatch(/^[0-9a-f]{32}$/);
    expect(devices[1]).toBe(devices[0]);
    expect(new Set(devices).size).toBe(3);
  });
  test.each<[Json, string]>([
    [['abc'], "'push_tokens' is not valid: it must be an array of objects"],
    [[{ token: 'abc' }], "'push_tokens.app_id' is not valid: it must be a string of 1 to 255 bytes"],
    [
      [{ app_id: 'a'.repeat(256), token: 'abc' }],
      "'push_tokens.app_id' is not valid: it must be a string of 1 to 255 bytes",
    ],
    [[{ app_id: 'app' }], "'push_tokens.token' is not valid: it must be a string of 1 to 2048 bytes"],
    [
      [{ app_id: 'app', token: '' }],
      "'push_tokens.token' is not valid: it must be a string of 1 to 2048 bytes",
    ],
    [
      [{ app_id: 'app', token: 'é'.repeat(1025) }],
      "'push_tokens.token' is not valid: it must be a string of 1 to 2048 bytes",
    ],
    [
      [{ ...token, device_id: '1234567' }],
      "'push_tokens.device_id' is not valid: it must be a string of 8 to 255 bytes",
    ],
    [
      [{ ...token, device_id: 'x'.repeat(256) }],
      "'push_tokens.device_id' is not valid: it must be a string of 8 to 255 bytes",
    ],
    [
      [{ ...token, device_id: 12345678 }],
      "'push_tokens.device_id' is not valid: it must be a string of 8 to 255 bytes",
    ],
  ])('are rejected as %j', (value, error) => {
    expect(errorOf({ push_tokens: value })).toBe(error);
  });
  test('are required by an import', () => {
    expect(errorOf({ push_token_import: true })).toBe("'push_tokens' is required");
    expect(errorOf({ push_token_import: true, push_tokens: [] })).toBe("'push_tokens' is required");
    expect(deltaOf({ push_token_import: true, push_tokens: [token] })).toEqual({ push_tokens: [token] });
  });
});
