import { validate as isUuid } from 'uuid';
import { describe, expect, test } from 'vitest';
import { usersAliasNew } from '../../src/operations/users.alias.new.ts';
import type { Json } from '../../src/profile/json.ts';
import { errorOf, identityPlanner, tooMany, unstorable } from './identity-plan.ts';

const plan = identityPlanner(usersAliasNew(), { isBlocked: (id) => id === 'dummy' });
const alias = { alias_name: 'ada', alias_label: 'forum' };
const alone = (element: Json) => plan({ user_aliases: [element] });

test('an alias belongs to the user of its external id, or to a new alias-only user', () => {
  const other = { alias_name: 'c-1', alias_label: 'cookie' };
  const {
    status,
    body,
    objects,
    plan: made,
  } = plan({ user_aliases: [{ external_id: 'ada', ...alias }, other] });
  expect({ status, body }).toEqual({ status: 201, body: { aliases_processed: 2, message: 'success' } });
  expect(objects).toEqual([
    { kind: 'alias_new', user_alias: alias, external_id: 'ada' },
    { kind: 'alias_new', user_alias: other },
  ]);
  expect(made!.objects.map(({ index }) => index)).toEqual([0, 1]);
  expect(made!.objects.every(({ id }) => isUuid(id))).toBe(true);
  expect(made!.replyOf).toBeUndefined();
});

test('label and name may be nested in a user_alias, as clients in the field send them', () => {
  expect(alone({ user_alias: alias })).toMatchObject({
    status: 201,
    body: { aliases_processed: 1, message: 'success' },
    objects: [{ kind: 'alias_new', user_alias: alias }],
  });
  expect(alone({ external_id: 'ada', user_alias: { ...alias, note: 1 } }).objects).toEqual([
    { kind: 'alias_new', user_alias: alias, external_id: 'ada' },
  ]);
  for (const none of [null, '']) expect(alone({ ...alias, user_alias: none })).toMatchObject({ status: 201 });
  expect(alone({ ...alias, user_alias: alias })).toMatchObject({ status: 201 });
});

test.each<[Json, string]>([
  [
    { user_alias: 'ada' },
    "'user_alias' is not valid: it must be an object with 'alias_name' and 'alias_label'",
  ],
  [{ user_alias: { alias_name: 'ada' } }, "'alias_label' is not valid: it must be a non-empty string"],
  [
    { alias_name: 'grace', user_alias: alias },
    "'alias_name' is not valid: it must not differ from the one in 'user_alias'",
  ],
])('a user_alias with an unclear meaning is rejected: %j', (element, error) => {
  expect(errorOf(alone(element))).toBe(error);
});

test.each([null, ''])('an external id of %j is ignored', (external_id) => {
  expect(alone({ ...alias, external_id }).objects).toEqual([{ kind: 'alias_new', user_alias: alias }]);
});

test('an integer as external id becomes a string', () => {
  expect(alone({ ...alias, external_id: 7 }).objects).toMatchObject([{ external_id: '7' }]);
});

test('other members of an element are ignored', () => {
  expect(alone({ ...alias, email: 'ada@example.com' }).objects).toEqual([
    { kind: 'alias_new', user_alias: alias },
  ]);
});

test('a bad element fails alone and is named by its position; the counter counts the others', () => {
  const {
    status,
    body,
    objects,
    plan: made,
  } = plan({
    user_aliases: [{ alias_name: 'ada' }, alias, 'text', { ...alias, external_id: 'dummy' }, alias],
  });
  expect({ status, body }).toEqual({
    status: 201,
    body: {
      aliases_processed: 2,
      message: 'success',
      errors: [
        refusal(0, "'alias_label' is not valid: it must be a non-empty string"),
        refusal(2, "each element of 'user_aliases' must be an object"),
        refusal(3, 'provided external_id is blacklisted and disallowed'),
      ],
    },
  });
  expect(made).toMatchObject({ rejected: { length: 3 }, objects: [{ index: 1 }, { index: 4 }] });
  expect(objects[0]).toEqual(objects[1]);
});

test('a request without a valid element is rejected, with the error of each element', () => {
  expect(plan({ user_aliases: [{}, 1] })).toMatchObject({
    status: 400,
    body: {
      message: "Valid data must be provided in the 'user_aliases' field.",
      errors: [{ index: 0 }, { index: 1 }],
    },
  });
});

describe('an element is rejected', () => {
  test.each<[string, object, string]>([
    ['without a name', { alias_name: undefined }, "'alias_name' is not valid: it must be a non-empty string"],
    ['with an empty label', { alias_label: '' }, "'alias_label' is not valid: it must be a non-empty string"],
    [
      'with a name of 237 bytes',
      { alias_name: `${'é'.repeat(118)}x` },
      "'alias_name' is not valid: it must be at most 236 bytes",
    ],
    ['with an object as external id', { external_id: {} }, "'external_id' is not valid: it must be a string"],
    [
      'with an external id of 988 bytes',
      { external_id: 'x'.repeat(988) },
      "'external_id' must be fewer than 988 bytes",
    ],
  ])('%s', (_case, change, text) => {
    expect(errorOf(alone({ ...alias, ...change } as Json))).toBe(text);
  });

  test.each(unstorable)('with an alias name that cannot be stored: %j', (alias_name, text) => {
    expect(errorOf(alone({ ...alias, alias_name }))).toBe(`'alias_name' is not valid: ${text}`);
  });
});

describe('the request is rejected as a whole', () => {
  test.each<[string, Json, string]>([
    ['without user_aliases', {}, "'user_aliases' is required"],
    ['with null', { user_aliases: null }, "'user_aliases' is required"],
    ['with an empty array', { user_aliases: [] }, "'user_aliases' is not valid: it must not be empty"],
    ['with a text', { user_aliases: 'ada' }, "'user_aliases' is not valid: it must be an array of objects"],
    ['with 51 aliases', { user_aliases: Array(51).fill(alias) }, tooMany.idsAndAliases],
  ])('%s', (_case, body, message) => {
    expect(plan(body as Record<string, Json>)).toMatchObject({ status: 400, body: { message } });
  });
});

test('50 aliases are accepted, and one object in place of an array', () => {
  expect(plan({ user_aliases: Array(50).fill(alias) }).body.aliases_processed).toBe(50);
  expect(plan({ user_aliases: alias }).body.aliases_processed).toBe(1);
});

const refusal = (index: number, type: string) => ({ type, input_array: 'user_aliases', index });
