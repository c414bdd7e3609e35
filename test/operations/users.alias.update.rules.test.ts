import { describe, expect, test } from 'vitest';
import { usersAliasUpdate } from '../../src/operations/users.alias.update.ts';
import type { Json } from '../../src/profile/json.ts';
import { errorOf, identityPlanner, tooMany, unstorable } from './identity-plan.ts';

const plan = identityPlanner(usersAliasUpdate());
const update = { alias_label: 'forum', old_alias_name: 'ada', new_alias_name: 'lovelace' };

test('each update is accepted with its label and both names; the counter counts them', () => {
  expect(plan({ alias_updates: [{ ...update, more: 1 }, update] })).toMatchObject({
    status: 201,
    body: { aliases_processed: 2, message: 'success' },
    objects: [
      { kind: 'alias_update', ...update },
      { kind: 'alias_update', ...update },
    ],
  });
  expect(plan({ alias_updates: [{ ...update, more: 1 }] }).objects[0]).not.toHaveProperty('more');
});

test('a bad element fails alone and is named by its position', () => {
  const { status, body, objects } = plan({ alias_updates: [update, { ...update, new_alias_name: '' }] });
  const type = "'new_alias_name' is not valid: it must be a non-empty string";
  expect({ status, body }).toEqual({
    status: 201,
    body: {
      aliases_processed: 1,
      message: 'success',
      errors: [{ type, input_array: 'alias_updates', index: 1 }],
    },
  });
  expect(objects).toHaveLength(1);
});

test.each(['alias_label', 'old_alias_name', 'new_alias_name'])(
  '%s is a storable text of 1 to 236 bytes',
  (part) => {
    const one = (value: Json) => plan({ alias_updates: [{ ...update, [part]: value }] });
    expect(one('x'.repeat(236)).status).toBe(201);
    expect(errorOf(one('x'.repeat(237)))).toBe(`'${part}' is not valid: it must be at most 236 bytes`);
    for (const value of [null, '', 7, {}])
      expect(errorOf(one(value))).toBe(`'${part}' is not valid: it must be a non-empty string`);
    for (const [value, text] of unstorable)
      expect(errorOf(one(value))).toBe(`'${part}' is not valid: ${text}`);
  },
);

describe('the request is rejected as a whole', () => {
  test.each<[string, Json, string]>([
    ['without alias_updates', {}, "'alias_updates' is required"],
    ['with an empty array', { alias_updates: [] }, "'alias_updates' is not valid: it must not be empty"],
    ['with a number', { alias_updates: 7 }, "'alias_updates' is not valid: it must be an array of objects"],
    ['with 51 updates', { alias_updates: Array(51).fill(update) }, tooMany.idsAndAliases],
  ])('%s', (_case, body, message) => {
    expect(plan(body as Record<string, Json>)).toMatchObject({ status: 400, body: { message } });
  });
});
