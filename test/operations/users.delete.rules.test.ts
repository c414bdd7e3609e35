import { describe, expect, test } from 'vitest';
import { usersDelete } from '../../src/operations/users.delete.ts';
import type { Json } from '../../src/profile/json.ts';
import { errorOf, identityPlanner, tooMany, unstorable } from './identity-plan.ts';

const plan = identityPlanner(usersDelete('service_id'), { isBlocked: () => true });
const service_id = '0123456789abcdef01234567';
const user_alias = { alias_name: 'ada', alias_label: 'forum' };
const prioritization = ['identified', 'most_recently_updated'];
const names = "'external_ids', 'user_aliases', 'service_ids', 'email_addresses' or 'phone_numbers'";

describe('each kind of identifiers names users to delete', () => {
  test.each<[string, Json, object]>([
    ['external_ids, also blocked ones', 'ada', { identifier: { external_id: 'ada' } }],
    ['external_ids, sent as integers', 7, { identifier: { external_id: '7' } }],
    ['user_aliases', user_alias, { identifier: { user_alias } }],
    ['service_ids', service_id, { identifier: { service_id } }],
    [
      'email_addresses, in any case',
      { email: 'Ada@Example.com', prioritization },
      { identifier: { email: 'ada@example.com' }, prioritization },
    ],
    [
      'phone_numbers, however they are written',
      { phone: '+1 (415) 555-2671', prioritization },
      { identifier: { phone: '+14155552671' }, prioritization },
    ],
  ])('%s', (kind, element, user) => {
    const field = kind.split(',')[0]!;
    for (const value of [[element], element]) {
      const { status, body, objects } = plan({ [field]: value });
      expect({ status, body }).toEqual({ status: 201, body: { deleted: 1, message: 'success' } });
      expect(objects).toEqual([{ kind: 'delete', user }]);
    }
  });

  test('service ids have the configured name', () => {
    const other = identityPlanner(usersDelete('braze_id'));
    expect(other({ braze_ids: [service_id] }).objects).toHaveLength(1);
    expect(other({ service_ids: [service_id] }).body.message).toMatch(/'braze_ids'.* is required$/);
  });
});

test('deleted counts the queued ids, and counts a repeated id twice', () => {
  const { body, plan: made } = plan({ external_ids: ['ada', 'ada', {}, 'grace'] });
  expect(body).toEqual({
    deleted: 3,
    message: 'success',
    errors: [
      {
        type: "each element of 'external_ids' must be a non-empty string",
        input_array: 'external_ids',
        index: 2,
      },
    ],
  });
  expect(made).toMatchObject({
    rejected: { length: 1 },
    objects: [{ index: 0 }, { index: 1 }, { index: 3 }],
  });
});

test('a request without a valid element is rejected, with the error of each element', () => {
  expect(plan({ external_ids: ['', null] })).toMatchObject({
    status: 400,
    body: {
      message: "Valid data must be provided in the 'external_ids' field.",
      errors: [{ index: 0 }, { index: 1 }],
    },
  });
});

describe('an element is rejected', () => {
  const text = 'must be a non-empty string';
  test.each<[string, Json, string]>([
    ['external_ids', '', `each element of 'external_ids' ${text}`],
    ['external_ids', true, `each element of 'external_ids' ${text}`],
    ['external_ids', 1.5, `each element of 'external_ids' ${text}`],
    ['external_ids', 'x'.repeat(988), "'external_id' must be fewer than 988 bytes"],
    [
      'user_aliases',
      'ada',
      "'user_alias' is not valid: it must be an object with 'alias_name' and 'alias_label'",
    ],
    ['user_aliases', { alias_name: 'ada' }, `'user_alias.alias_label' is not valid: it ${text}`],
    ['service_ids', null, `each element of 'service_ids' ${text}`],
    [
      'service_ids',
      service_id.toUpperCase(),
      "'service_ids' is not valid: it must be 24 lower-case hexadecimal digits",
    ],
    ['email_addresses', 'ada@example.com', "each element of 'email_addresses' must be an object"],
    ['email_addresses', { prioritization }, "'email' is required"],
    [
      'email_addresses',
      { email: 'ada', prioritization },
      "The value provided for the 'email' field is not a valid email.",
    ],
    ['email_addresses', { email: 'ada@example.com' }, "'prioritization' is required with 'email'"],
    [
      'phone_numbers',
      { phone: '12', prioritization },
      "'phone' is not valid: it must be a phone number in E.164 format",
    ],
    ['phone_numbers', { phone: '+14155552671' }, "'prioritization' is required with 'phone'"],
  ])('among %s: %j', (field, element, error) => {
    expect(errorOf(plan({ [field]: [element] }))).toBe(error);
  });

  test.each(unstorable)('for an external id that cannot be stored: %j', (id, error) => {
    expect(errorOf(plan({ external_ids: [id] }))).toBe(`the value is not valid: ${error}`);
  });
});

describe('the request is rejected as a whole', () => {
  const many = (element: Json) => Array<Json>(51).fill(element);
  test.each<[string, Json, string]>([
    ['without any kind', { external_id: 'ada' }, `${names} is required`],
    ['with nulls alone', { external_ids: null, user_aliases: null }, `${names} is required`],
    [
      'with two kinds',
      { external_ids: ['a'], user_aliases: [user_alias] },
      `a request must not have more than one of ${names}`,
    ],
    [
      'with a second kind that is empty',
      { external_ids: ['a'], service_ids: [] },
      `a request must not have more than one of ${names}`,
    ],
    ['with an empty array', { external_ids: [] }, "'external_ids' is not valid: it must not be empty"],
    [
      'with an object of external ids',
      { external_ids: {} },
      "'external_ids' is not valid: it must be an array of strings",
    ],
    [
      'with a text of aliases',
      { user_aliases: 'a' },
      "'user_aliases' is not valid: it must be an array of objects",
    ],
    ['with 51 external ids', { external_ids: many('a') }, tooMany.ids],
    ['with 51 service ids', { service_ids: many(service_id) }, tooMany.ids],
    ['with 51 aliases', { user_aliases: many(user_alias) }, tooMany.idsAndAliases],
    [
      'with 51 email addresses',
      { email_addresses: many({ email: 'a@example.com', prioritization }) },
      tooMany.ids,
    ],
    [
      'with 51 phone numbers',
      { phone_numbers: many({ phone: '+14155552671', prioritization }) },
      tooMany.ids,
    ],
  ])('%s', (_case, body, message) => {
    expect(plan(body as Record<string, Json>)).toEqual({ status: 400, body: { message }, objects: [] });
  });

  test('accepts 50 identifiers of one kind, and ignores other kinds that are null', () => {
    expect(plan({ external_ids: Array(50).fill('a'), user_aliases: null }).body.deleted).toBe(50);
  });
});
