import { describe, expect, test } from 'vitest';
import { usersIdentify } from '../../src/operations/users.identify.ts';
import type { Json } from '../../src/profile/json.ts';
import { errorOf, identityPlanner, tooMany, unstorable } from './identity-plan.ts';

const plan = identityPlanner(usersIdentify(), { isBlocked: (id) => id === 'dummy' });
const user_alias = { alias_name: 'c-1', alias_label: 'cookie' };
const prioritization = ['unidentified', 'least_recently_updated'];
const external_id = 'ada';
const byAlias = { external_id, user_alias };
const byEmail = { external_id, email: 'Ada@Example.com', prioritization };
const byPhone = { external_id, phone: 4155552671, prioritization };

test('aliases, email addresses and phone numbers are identified, and counted per array', () => {
  const { status, body, objects } = plan({
    aliases_to_identify: [byAlias, byAlias],
    emails_to_identify: [byEmail],
    phone_numbers_to_identify: [byPhone],
  });
  expect({ status, body }).toEqual({
    status: 201,
    body: { aliases_processed: 2, emails_processed: 1, phone_numbers_processed: 1, message: 'success' },
  });
  expect(objects).toEqual([
    { kind: 'identify', external_id, user: { identifier: { user_alias } } },
    { kind: 'identify', external_id, user: { identifier: { user_alias } } },
    { kind: 'identify', external_id, user: { identifier: { email: 'ada@example.com' }, prioritization } },
    { kind: 'identify', external_id, user: { identifier: { phone: '+14155552671' }, prioritization } },
  ]);
  expect(plan({ emails_to_identify: byEmail }).body).toEqual({ emails_processed: 1, message: 'success' });
});

test('an empty array is counted as 0 if another array has elements', () => {
  expect(plan({ aliases_to_identify: [], emails_to_identify: [byEmail] })).toMatchObject({
    status: 201,
    body: { aliases_processed: 0, emails_processed: 1 },
  });
});

test.each(['none', 'merge', null, ''])('merge_behavior %j leaves the result unchanged', (merge_behavior) => {
  const { status, objects } = plan({ aliases_to_identify: [byAlias], merge_behavior });
  expect({ status, objects }).toEqual({
    status: 201,
    objects: plan({ aliases_to_identify: [byAlias] }).objects,
  });
});

test('a bad element fails alone and is named by its array and position', () => {
  const {
    body,
    objects,
    plan: made,
  } = plan({
    aliases_to_identify: [{ ...byAlias, external_id: 'dummy' }, byAlias, { external_id }],
    emails_to_identify: [{ ...byEmail, prioritization: ['most_recently_updated', 'least_recently_updated'] }],
  });
  expect(body).toEqual({
    aliases_processed: 1,
    emails_processed: 0,
    message: 'success',
    errors: [
      {
        type: 'provided external_id is blacklisted and disallowed',
        input_array: 'aliases_to_identify',
        index: 0,
      },
      { type: "'user_alias' is required", input_array: 'aliases_to_identify', index: 2 },
      {
        type: "Request can not contain both of 'most_recently_updated' and 'least_recently_updated' values in the 'prioritization' array",
        input_array: 'emails_to_identify',
        index: 0,
      },
    ],
  });
  expect(objects).toHaveLength(1);
  expect(made).toMatchObject({ rejected: { length: 3 } });
});

test('a request without a valid element is rejected, with the error of each element', () => {
  expect(plan({ aliases_to_identify: [{}], emails_to_identify: [7] })).toMatchObject({
    status: 400,
    body: {
      message: "Valid data must be provided in the 'aliases_to_identify', 'emails_to_identify' fields.",
      errors: [{ input_array: 'aliases_to_identify' }, { input_array: 'emails_to_identify' }],
    },
  });
});

describe('an element is rejected', () => {
  test.each<[string, Json, string]>([
    ['without an external id', { user_alias }, "'external_id' is required"],
    ['with an empty external id', { user_alias, external_id: '' }, "'external_id' is required"],
    [
      'with an array as external id',
      { user_alias, external_id: [] },
      "'external_id' is not valid: it must be a string",
    ],
    [
      'with half an alias',
      { external_id, user_alias: { alias_name: 'a' } },
      "'user_alias.alias_label' is not valid: it must be a non-empty string",
    ],
    ...unstorable.map(([id, text]): [string, Json, string] => [
      `with an id that cannot be stored: ${JSON.stringify(id)}`,
      { user_alias, external_id: id },
      `'external_id' is not valid: ${text}`,
    ]),
  ])('%s', (_case, element, error) => {
    expect(errorOf(plan({ aliases_to_identify: [element] }))).toBe(error);
  });

  test('as an address without a prioritization, or an invalid address', () => {
    const { prioritization: _, ...bare } = byPhone;
    expect(errorOf(plan({ phone_numbers_to_identify: [bare] }))).toBe(
      "'prioritization' is required with 'phone'",
    );
    expect(errorOf(plan({ emails_to_identify: [{ ...byEmail, email: 'ada' }] }))).toBe(
      "The value provided for the 'email' field is not a valid email.",
    );
  });
});

describe('the request is rejected as a whole', () => {
  const required = "'aliases_to_identify', 'emails_to_identify' or 'phone_numbers_to_identify' is required";
  const aliases_to_identify = [byAlias];
  test.each<[string, Json, string]>([
    ['without any of the arrays', { merge_behavior: 'merge' }, required],
    [
      'with empty arrays alone',
      { emails_to_identify: [], phone_numbers_to_identify: [] },
      "'emails_to_identify' is not valid: it must not be empty",
    ],
    [
      'with a text',
      { aliases_to_identify: 'a' },
      "'aliases_to_identify' is not valid: it must be an array of objects",
    ],
    [
      'with another merge_behavior',
      { aliases_to_identify, merge_behavior: 'Merge' },
      "'merge_behavior' is not valid: it must be 'none' or 'merge'",
    ],
    ['with 51 aliases', { aliases_to_identify: Array(51).fill(byAlias) }, tooMany.idsAndAliases],
    [
      'with 51 email addresses and one valid alias',
      { aliases_to_identify, emails_to_identify: Array(51).fill(byEmail) },
      tooMany.idsAndAliases,
    ],
    ['with 51 phone numbers', { phone_numbers_to_identify: Array(51).fill(byPhone) }, tooMany.idsAndAliases],
  ])('%s', (_case, body, message) => {
    expect(plan(body as Record<string, Json>)).toEqual({ status: 400, body: { message }, objects: [] });
  });
});
