import { describe, expect, test } from 'vitest';
import { usersExternalIdsRename } from '../../src/operations/users.external_ids.rename.ts';
import type { Json } from '../../src/profile/json.ts';
import { errorOf, identityPlanner, tooMany, unstorable } from './identity-plan.ts';

const plan = identityPlanner(usersExternalIdsRename(), { isBlocked: (id) => id === 'dummy' });
const rename = (current_external_id: Json, new_external_id: Json) => ({
  current_external_id,
  new_external_id,
});
const refusal = (index: number, type: string) => ({ type, input_array: 'external_id_renames', index });

test('each rename is accepted, and is pending until its outcome is known', () => {
  const { status, body, objects } = plan({ external_id_renames: [rename('ada', 'lovelace'), rename(7, 8)] });
  expect({ status, body }).toEqual({
    status: 202,
    body: {
      external_ids: [rename('ada', 'lovelace'), rename('7', '8')],
      rename_errors: [],
      message: 'success',
      pending: true,
    },
  });
  expect(objects).toEqual([
    { kind: 'external_id_rename', ...rename('ada', 'lovelace') },
    { kind: 'external_id_rename', ...rename('7', '8') },
  ]);
});

test('the final answer lists renamed ids, and in order the failures of request and store', () => {
  const { plan: made } = plan({
    external_id_renames: [
      rename('ada', 'lovelace'),
      rename('grace', 'hopper'),
      rename('alan', 'alan'),
      rename('kurt', 'goedel'),
    ],
  });
  const [first, , last] = made!.objects;
  expect(made).toMatchObject({ rejected: { length: 1 }, objects: { length: 3 } });
  expect(
    made!.replyOf!(
      new Map([
        [first!.id, 'new_external_id is already in use'],
        [last!.id, 'gone'],
      ]),
    ),
  ).toEqual({
    status: 201,
    body: {
      external_ids: [rename('grace', 'hopper')],
      rename_errors: [
        refusal(0, 'new_external_id is already in use'),
        refusal(2, "'new_external_id' must differ from 'current_external_id'"),
        refusal(3, 'gone'),
      ],
      message: 'success',
    },
  });
});

test('a request is answered with 201 even if every rename failed in the store', () => {
  const { plan: made } = plan({ external_id_renames: rename('ada', 'lovelace') });
  expect(made!.replyOf!(new Map([[made!.objects[0]!.id, 'gone']]))).toMatchObject({
    status: 201,
    body: { external_ids: [], rename_errors: [refusal(0, 'gone')] },
  });
});

describe('an element is rejected', () => {
  test.each<[string, Json, string]>([
    ['that is not an object', 'ada', "each element of 'external_id_renames' must be an object"],
    ['without the current id', rename(null, 'b'), "'current_external_id' is required"],
    ['without the new id', rename('a', ''), "'new_external_id' is required"],
    ['with an object as new id', rename('a', {}), "'new_external_id' is not valid: it must be a string"],
    [
      'with a new id of 988 bytes',
      rename('a', 'x'.repeat(988)),
      "'new_external_id' must be fewer than 988 bytes",
    ],
    [
      'with a new id that is blocked',
      rename('a', 'dummy'),
      'provided external_id is blacklisted and disallowed',
    ],
    ['with two equal ids', rename('7', 7), "'new_external_id' must differ from 'current_external_id'"],
    ...unstorable.map(([id, text]): [string, Json, string] => [
      `with an id that cannot be stored: ${JSON.stringify(id)}`,
      rename('a', id),
      `'new_external_id' is not valid: ${text}`,
    ]),
  ])('%s', (_case, element, error) => {
    expect(errorOf(plan({ external_id_renames: [element] }))).toBe(error);
  });

  test('not for a current id that is blocked', () => {
    expect(plan({ external_id_renames: [rename('dummy', 'b')] }).status).toBe(202);
  });
});

describe('the request is rejected as a whole', () => {
  test.each<[string, Json, string]>([
    ['without external_id_renames', {}, "'external_id_renames' is required"],
    [
      'with an empty array',
      { external_id_renames: [] },
      "'external_id_renames' is not valid: it must not be empty",
    ],
    [
      'with a text',
      { external_id_renames: 'a' },
      "'external_id_renames' is not valid: it must be an array of objects",
    ],
    ['with 51 renames', { external_id_renames: Array(51).fill(rename('a', 'b')) }, tooMany.ids],
  ])('%s', (_case, body, message) => {
    expect(plan(body as Record<string, Json>)).toEqual({ status: 400, body: { message }, objects: [] });
  });

  test('when no element is valid, with the error of each', () => {
    expect(plan({ external_id_renames: [rename('a', 'a')] }).body).toEqual({
      message: "Valid data must be provided in the 'external_id_renames' field.",
      errors: [refusal(0, "'new_external_id' must differ from 'current_external_id'")],
    });
  });
});
