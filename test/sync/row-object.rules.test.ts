import { describe, expect, test } from 'vitest';
import type { IntegrationKind, SourceRow } from '../../src/integrations/source.ts';
import type { Json } from '../../src/profile/json.ts';
import { createRowValidator } from '../../workers/sync/chunk.ts';
import { callerOf } from '../operations/caller.ts';

const updatedAt = '2026-01-30T08:00:00.123456Z';
const validateRow = createRowValidator('braze_id');
const blocked = callerOf('018f0000-0000-7000-8000-000000000000', { isBlocked: (id) => id === 'undefined' });

interface Given {
  kind?: IntegrationKind;
  identifiers?: SourceRow['identifiers'];
  payload?: Json | undefined;
  text?: string;
  row?: Partial<SourceRow>;
  updateExistingOnly?: boolean;
}

/** Returns the object that the row becomes, or the reason of its rejection. */
function judged(given: Given) {
  const { kind = 'attributes', identifiers = { external_id: 'ada' }, updateExistingOnly = false } = given;
  const payload = given.text ?? (given.payload === undefined ? undefined : JSON.stringify(given.payload));
  const row = { updatedAt, identifiers, ...(payload !== undefined && { payload }), ...given.row };
  const verdict = validateRow(row, 0, { caller: blocked, kind, updateExistingOnly });
  return 'error' in verdict ? verdict.error : verdict.object;
}

const event = { name: 'seen' };
const purchase = { product_id: 'book', currency: 'EUR', price: 2 };

describe('the user of a row', () => {
  test.each([
    ['EXTERNAL_ID', { external_id: 'ada' }, { external_id: 'ada' }],
    [
      'ALIAS_NAME with ALIAS_LABEL',
      { alias_name: 'a', alias_label: 'l' },
      { user_alias: { alias_name: 'a', alias_label: 'l' } },
    ],
    [
      "the service's own id",
      { service_id: '0123456789abcdef01234567' },
      { service_id: '0123456789abcdef01234567' },
    ],
    ['EMAIL', { email: 'Ada@Example.com' }, { email: 'ada@example.com' }],
    ['PHONE', { phone: '+49 30 901820' }, { phone: '+4930901820' }],
  ])('%s names a user', (_, identifiers, identifier) => {
    expect(judged({ identifiers, payload: { plan: 'pro' } })).toMatchObject({ identifier });
    expect(judged({ kind: 'events', identifiers, payload: event })).toMatchObject({ identifier });
    expect(judged({ kind: 'purchases', identifiers, payload: purchase })).toMatchObject({ identifier });
  });

  test('an email address takes precedence over a phone number, which is not written either', () => {
    const object = judged({ identifiers: { email: 'a@example.com', phone: '+4930901820' }, payload: {} });
    expect(object).toMatchObject({ identifier: { email: 'a@example.com' } });
    expect(object).not.toHaveProperty('standard.phone');
  });

  test('a row without an identifier is rejected', () => {
    const reason =
      'the row has no identifier: one of EXTERNAL_ID, ALIAS_NAME with ALIAS_LABEL, BRAZE_ID, EMAIL, PHONE is required';
    expect(judged({ identifiers: {}, payload: {} })).toBe(reason);
    expect(judged({ identifiers: { external_id: '' }, payload: {} })).toBe(reason);
  });

  test('a row that names two users is rejected', () => {
    const reason = 'a row must have exactly one identifier: it has EXTERNAL_ID and EMAIL';
    expect(judged({ identifiers: { external_id: 'ada', email: 'a@example.com' }, payload: {} })).toBe(reason);
  });

  test('half an alias is rejected', () => {
    expect(judged({ identifiers: { alias_name: 'a' }, payload: {} })).toBe('ALIAS_NAME requires ALIAS_LABEL');
    expect(judged({ identifiers: { alias_label: 'a' }, payload: {} })).toBe(
      'ALIAS_LABEL requires ALIAS_NAME',
    );
  });

  test('an identifier that is invalid for any user is rejected as in /users/track', () => {
    expect(judged({ identifiers: { external_id: 'x'.repeat(988) }, payload: {} })).toBe(
      "'external_id' must be fewer than 988 bytes",
    );
    expect(judged({ identifiers: { email: 'nobody' }, payload: {} })).toBe(
      "The value provided for the 'email' field is not a valid email.",
    );
  });

  test('a blocked external id is rejected', () => {
    expect(judged({ identifiers: { external_id: 'undefined' }, payload: {} })).toMatch(/blacklisted/);
  });
});

describe('UPDATED_AT', () => {
  test('is required', () => {
    const row = { updatedAt: undefined } as never;
    expect(judged({ row, payload: {} })).toBe('UPDATED_AT is required');
    expect(judged({ row: { ...(row as object), unreadable: '' }, payload: {} })).toBe(
      'UPDATED_AT is required',
    );
  });

  test('must be a time, also of a deletion', () => {
    const row = { updatedAt: undefined, unreadable: 'yesterday' } as never;
    const reason = "UPDATED_AT is not valid: it must be a time, and is 'yesterday'";
    expect(judged({ row, payload: {} })).toBe(reason);
    expect(judged({ kind: 'deletes', row })).toBe(reason);
  });

  test('is the time of an event or a purchase without one', () => {
    expect(judged({ kind: 'events', payload: event })).toMatchObject({ time: '2026-01-30T08:00:00.123Z' });
    expect(judged({ kind: 'purchases', payload: purchase })).toMatchObject({
      time: '2026-01-30T08:00:00.123Z',
    });
    const time = '2025-12-24T00:00:00Z';
    expect(judged({ kind: 'events', payload: { ...event, time } })).toMatchObject({
      time: '2025-12-24T00:00:00.000Z',
    });
  });
});

describe('PAYLOAD', () => {
  test('becomes attributes, an event or a purchase', () => {
    expect(judged({ payload: { first_name: 'Ada', plan: 'pro', logins: { inc: 1 } } })).toMatchObject({
      kind: 'attributes',
      standard: { first_name: 'Ada' },
      set: { plan: 'pro' },
    });
    expect(judged({ kind: 'events', payload: { ...event, properties: { at: 1 } } })).toMatchObject({
      kind: 'events',
      name: 'seen',
      properties: { at: 1 },
    });
    expect(judged({ kind: 'purchases', payload: purchase })).toMatchObject({
      kind: 'purchases',
      currency: 'EUR',
      price: 2,
      quantity: 1,
    });
  });

  test.each([
    [undefined, 'PAYLOAD is required'],
    ['[1]', 'PAYLOAD is not valid: it must be a JSON object'],
    ['null', 'PAYLOAD is not valid: it must be a JSON object'],
    ['"x"', 'PAYLOAD is not valid: it must be a JSON object'],
  ])('%s is rejected', (text, reason) => {
    expect(judged({ ...(text !== undefined && { text }) })).toBe(reason);
  });

  test('that is not JSON is rejected with the position', () => {
    expect(judged({ text: '{"a": tru}' })).toMatch(/^PAYLOAD is not valid: it must be a JSON object \(.*tru/);
  });

  test('above 1 MB is rejected, counted in bytes', () => {
    const wide = (bytes: number) => `{"a":"${'ä'.repeat((bytes - 8) / 2)}"}`;
    expect(judged({ text: wide(1_048_576) })).not.toBe('Payload was greater than 1MB');
    expect(judged({ text: wide(1_048_578) })).toBe('Payload was greater than 1MB');
  });

  test('with more than 250 attributes is rejected', () => {
    const of = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`a${i}`, i]));
    expect(judged({ payload: of(250) })).toMatchObject({ kind: 'attributes' });
    expect(judged({ payload: of(251) })).toBe('PAYLOAD has more than 250 attributes');
  });

  test.each(['external_id', 'braze_id', 'user_alias'])('that names a user by %s is rejected', (name) => {
    const payload = { [name]: 'other' };
    expect(judged({ payload })).toBe(`PAYLOAD must not name an identifier: it has '${name}'`);
    expect(judged({ kind: 'events', payload: { ...event, ...payload } })).toMatch(/must not name/);
  });

  test('may set addresses as attributes, except for the address that names the user', () => {
    const payload = { email: 'a@example.com', phone: '+4930901820' };
    expect(judged({ payload })).toMatchObject({ standard: { email: 'a@example.com', phone: '+4930901820' } });
    expect(judged({ identifiers: { email: 'b@example.com' }, payload })).toMatch(/it has 'email'/);
    expect(judged({ identifiers: { phone: '+4930901821' }, payload: { phone: '+4930901820' } })).toMatch(
      /it has 'phone'/,
    );
    expect(
      judged({ identifiers: { email: 'b@example.com' }, payload: { phone: '+4930901820' } }),
    ).toMatchObject({ identifier: { email: 'b@example.com' }, standard: { phone: '+4930901820' } });
    expect(judged({ kind: 'events', payload: { ...event, email: 'a@example.com' } })).toMatch(
      /it has 'email'/,
    );
  });

  test('that imports push tokens is rejected', () => {
    const payload = { push_token_import: true, push_tokens: [] };
    expect(judged({ payload })).toMatch(/'push_token_import'/);
  });

  test('is validated as in /users/track', () => {
    expect(judged({ payload: { email: 'none' } })).toMatch(/'email'/);
    expect(judged({ payload: { plan: '\u0000' } })).toMatch(/u0000/);
    expect(judged({ kind: 'events', payload: {} })).toBe("'name' is required");
    expect(judged({ kind: 'purchases', payload: { ...purchase, currency: 'XXQ' } })).toMatch(/currency/);
    expect(judged({ kind: 'purchases', payload: { ...purchase, quantity: 0 } })).toBe(
      "'quantity' is not valid",
    );
  });
});

describe('creation of users', () => {
  const create = (given: Given) =>
    (judged({ payload: {}, ...given }) as { create?: boolean }).create !== false;
  const alias = { alias_name: 'a', alias_label: 'l' };
  const service = { service_id: '0123456789abcdef01234567' };

  test('a row with an unknown identifier creates a user, except by a service id', () => {
    expect([create({}), create({ identifiers: alias })]).toEqual([true, true]);
    expect(create({ identifiers: service })).toBe(false);
  });

  test('an integration that only updates creates no user, whatever the payload contains', () => {
    expect([
      create({ updateExistingOnly: true }),
      create({ updateExistingOnly: true, identifiers: alias }),
      create({ updateExistingOnly: true, payload: { _update_existing_only: false } }),
    ]).toEqual([false, false, false]);
  });

  test('a payload may restrict itself to existing users', () => {
    expect(create({ payload: { _update_existing_only: true } })).toBe(false);
  });
});

describe('deletions', () => {
  test.each([
    [{ external_id: 'ada' }, { external_id: 'ada' }],
    [{ alias_name: 'a', alias_label: 'l' }, { user_alias: { alias_name: 'a', alias_label: 'l' } }],
    [{ service_id: '0123456789abcdef01234567' }, { service_id: '0123456789abcdef01234567' }],
  ])('%j names the user to delete', (identifiers, identifier) => {
    expect(judged({ kind: 'deletes', identifiers })).toMatchObject({ kind: 'delete', user: { identifier } });
  });

  test('addresses cannot name the user to delete', () => {
    const reason =
      'the row has no identifier: one of EXTERNAL_ID, ALIAS_NAME with ALIAS_LABEL, BRAZE_ID is required';
    expect(judged({ kind: 'deletes', identifiers: { email: 'a@example.com' } })).toBe(reason);
    expect(
      judged({ kind: 'deletes', identifiers: { external_id: 'ada', email: 'a@example.com' } }),
    ).toMatchObject({ user: { identifier: { external_id: 'ada' } } });
  });

  test('an invalid id is rejected as in /users/delete', () => {
    expect(judged({ kind: 'deletes', identifiers: { service_id: 'x' } })).toMatch(/braze_ids/);
  });
});
