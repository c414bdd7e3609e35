import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { type Objects, planner, time } from './plan.ts';

const { plan, attributes, event, purchase } = planner();

const external_id = 'ada';
const user_alias = { alias_name: 'ada', alias_label: 'forum' };
const service_id = '0123456789abcdef01234567';
const email = 'ada@example.com';
const phone = '+14155552671';
const anyKind = { attributes, event, purchase };

/** Plans an object of each kind with the identifier. */
const onEachKind = (identifier: Objects) =>
  Object.values(anyKind).map((one) => one({ external_id: null, ...identifier }));

describe('each kind of identifier addresses attributes, events and purchases', () => {
  test.each<[string, Objects, object]>([
    ['external_id', { external_id }, { external_id }],
    ['user_alias', { user_alias }, { user_alias }],
    ['service_id', { service_id }, { service_id }],
    ['email, in any case', { email: 'Ada@Example.COM' }, { email }],
    ['phone, however it is written', { phone: '+1 (415) 555-2671' }, { phone }],
    ['phone, sent as an integer', { phone: 4155552671 }, { phone }],
  ])('%s', (_kind, identifier, expected) => {
    for (const object of onEachKind(identifier)) expect(object).toMatchObject({ identifier: expected });
  });

  test('an object without an identifier is rejected', () => {
    for (const answer of onEachKind({})) {
      expect(answer).toBe("'external_id', 'service_id', 'user_alias', 'email' or 'phone' is required");
    }
  });
});

describe('precedence', () => {
  test.each<[string, Objects, object]>([
    ['external_id before user_alias', { external_id, user_alias, service_id, email, phone }, { external_id }],
    ['user_alias before service_id', { user_alias, service_id, email, phone }, { user_alias }],
    ['service_id before email', { service_id, email, phone }, { service_id }],
    ['email before phone', { email, phone }, { email }],
  ])('%s', (_rule, given, expected) => {
    for (const object of onEachKind(given)) expect(object).toMatchObject({ identifier: expected });
  });

  test('email and phone next to another identifier are attributes', () => {
    expect(attributes({ external_id, email, phone })).toMatchObject({
      identifier: { external_id },
      standard: { email, phone, phone_valid: true },
    });
  });

  test('email and phone next to another identifier of an event or a purchase are ignored', () => {
    for (const answer of [event({ external_id, email, phone }), purchase({ external_id, email, phone })]) {
      expect(answer).toMatchObject({ identifier: { external_id } });
      expect(answer).not.toHaveProperty('standard');
      expect(answer).not.toHaveProperty('email');
      expect(answer).not.toHaveProperty('phone');
    }
  });

  test('empty identifiers are ignored in each array if another one addresses the object', () => {
    const none = { user_alias: { alias_name: '', alias_label: '' }, service_id: '', email: '', phone: '' };
    for (const answer of onEachKind({ external_id, ...none })) {
      expect(answer).toMatchObject({ identifier: { external_id } });
      expect(answer).not.toHaveProperty('standard');
    }
    for (const answer of onEachKind({ ...none, external_id: '', email })) {
      expect(answer).toMatchObject({ identifier: { email } });
    }
    for (const answer of onEachKind({ ...none, external_id: '' })) expect(answer).toMatch(/is required$/);
  });

  test('an incomplete alias next to an external id is ignored in each array', () => {
    for (const answer of onEachKind({ external_id, user_alias: { alias_name: 'ada', alias_label: '' } })) {
      expect(answer).toMatchObject({ identifier: { external_id } });
    }
  });

  test('email and phone that address a profile are written to it as well', () => {
    expect(attributes({ email, phone })).toMatchObject({ identifier: { email }, standard: { email, phone } });
  });
});

describe('whether an unknown identifier creates a profile', () => {
  test.each<[string, Objects, boolean]>([
    ['external_id: yes', { external_id }, true],
    [
      'external_id with _update_existing_only false: yes',
      { external_id, _update_existing_only: false },
      true,
    ],
    ['external_id with _update_existing_only true: no', { external_id, _update_existing_only: true }, false],
    ['user_alias: no', { user_alias }, false],
    ['user_alias with _update_existing_only true: no', { user_alias, _update_existing_only: true }, false],
    ['user_alias with _update_existing_only false: yes', { user_alias, _update_existing_only: false }, true],
    ['service_id: no', { service_id }, false],
    ['service_id with _update_existing_only false: no', { service_id, _update_existing_only: false }, false],
    ['email: yes', { email }, true],
    ['email with _update_existing_only false: yes', { email, _update_existing_only: false }, true],
    ['email with _update_existing_only true: no', { email, _update_existing_only: true }, false],
    ['phone: yes', { phone }, true],
    ['phone with _update_existing_only true: no', { phone, _update_existing_only: true }, false],
  ])('%s', (_rule, given, create) => {
    for (const object of onEachKind(given)) {
      expect(object).toSatisfy((accepted: { create?: boolean }) => (accepted.create !== false) === create);
    }
  });

  test('_update_existing_only must be a boolean, and is not stored as an attribute', () => {
    for (const answer of onEachKind({ external_id, _update_existing_only: 'true' })) {
      expect(answer).toBe("'_update_existing_only' is not valid: it must be a boolean");
    }
    expect(attributes({ external_id, _update_existing_only: true })).not.toHaveProperty('set');
  });
});

describe('format of an identifier', () => {
  test.each<[string, Objects, string]>([
    ['external_id: no object', { external_id: {} }, "'external_id' is not valid: it must be a string"],
    ['external_id: no boolean', { external_id: true }, "'external_id' is not valid: it must be a string"],
    ['external_id: no fraction', { external_id: 1.5 }, "'external_id' is not valid: it must be a string"],
    [
      'external_id: at most 987 bytes',
      { external_id: 'x'.repeat(988) },
      "'external_id' must be fewer than 988 bytes",
    ],
    [
      'external_id: bytes, not characters',
      { external_id: 'é'.repeat(494) },
      "'external_id' must be fewer than 988 bytes",
    ],
    [
      'user_alias: an object',
      { user_alias: 'ada' },
      "'user_alias' is not valid: it must be an object with 'alias_name' and 'alias_label'",
    ],
    [
      'user_alias: a name',
      { user_alias: { alias_label: 'forum' } },
      "'user_alias.alias_name' is not valid: it must be a non-empty string",
    ],
    [
      'user_alias: a label',
      { user_alias: { alias_name: 'ada', alias_label: '' } },
      "'user_alias.alias_label' is not valid: it must be a non-empty string",
    ],
    [
      'user_alias: at most 236 bytes each',
      { user_alias: { alias_name: 'x'.repeat(237), alias_label: 'forum' } },
      "'user_alias.alias_name' is not valid: it must be at most 236 bytes",
    ],
    [
      'service_id: 24 hexadecimal digits',
      { service_id: 'xyz' },
      "'service_id' is not valid: it must be 24 lower-case hexadecimal digits",
    ],
    ['email: an address', { email: 'ada' }, "The value provided for the 'email' field is not a valid email."],
    [
      'email: no white space',
      { email: 'a da@example.com' },
      "The value provided for the 'email' field is not a valid email.",
    ],
    [
      'phone: a number that can exist',
      { phone: '+12345' },
      "'phone' is not valid: it must be a phone number in E.164 format",
    ],
    ['phone: no object', { phone: {} }, "'phone' is not valid: it must be a phone number in E.164 format"],
  ])('%s', (_rule, given, text) => {
    for (const answer of onEachKind(given)) expect(answer).toBe(text);
  });

  test('the longest identifiers are accepted', () => {
    expect(event({ external_id: 'é'.repeat(493) })).toMatchObject({ identifier: {} });
    const longest = { alias_name: 'é'.repeat(118), alias_label: 'x'.repeat(236) };
    expect(attributes({ user_alias: longest })).toMatchObject({ identifier: { user_alias: longest } });
  });

  test('one request may name one user by several identifiers', () => {
    const { body } = plan({
      attributes: [{ external_id, email }],
      events: [{ email, name: 'seen', time }],
      purchases: [],
    });
    expect(body).toEqual({ attributes_processed: 1, events_processed: 1, message: 'success' });
  });
});

describe('an import of push tokens', () => {
  const push_tokens = [{ app_id: 'app', token: 'token', device_id: 'device-1' }];

  test('needs no identifier: each token creates a profile', () => {
    const accepted = attributes({ push_token_import: true, push_tokens });
    expect(accepted).toMatchObject({ kind: 'attributes', push_tokens });
    expect(accepted).not.toHaveProperty('identifier');
  });

  test.each<[string, Objects]>([
    ['external_id', { external_id }],
    ['user_alias', { user_alias }],
    ['service_id', { service_id }],
  ])('may not carry %s', (_kind, identifier) => {
    expect(attributes({ push_token_import: true, push_tokens, ...identifier })).toBe(
      "'push_token_import' is not valid: it must not carry 'external_id', 'user_alias' or 'service_id'",
    );
  });

  test('may carry attributes; email and phone are among them', () => {
    const object = { push_token_import: true, push_tokens, email, phone, country: 'DE', plan: 'pro' };
    const accepted = attributes({
      ...object,
      external_id: '',
      user_alias: { alias_name: '', alias_label: '' },
    });
    expect(accepted).toMatchObject({ standard: { email, phone, country: 'DE' }, set: { plan: 'pro' } });
    expect(accepted).not.toHaveProperty('identifier');
  });

  test('needs subscription groups that exist', () => {
    const stranger = planner('service_id', { hasGroup: () => false });
    const subscription_groups = [{ subscription_group_id: uuidv7(), subscription_state: 'subscribed' }];
    expect(stranger.attributes({ push_token_import: true, push_tokens, subscription_groups })).toMatch(
      /no subscription group has the id/,
    );
  });

  test('needs a token', () => {
    for (const none of [undefined, null, []] as (Json | undefined)[]) {
      const answer = attributes({
        push_token_import: true,
        ...(none !== undefined && { push_tokens: none }),
      });
      expect(answer).toMatch(/^'push_tokens' is (required|not valid)/);
    }
  });

  test('push_token_import false is processed like any other object', () => {
    expect(attributes({ external_id, push_token_import: false, push_tokens })).toMatchObject({
      identifier: { external_id },
      push_tokens,
    });
    expect(attributes({ push_token_import: false, push_tokens })).toMatch(/is required$/);
  });
});
