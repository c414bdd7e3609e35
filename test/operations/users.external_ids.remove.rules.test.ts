import { describe, expect, test } from 'vitest';
import { usersExternalIdsRemove } from '../../src/operations/users.external_ids.remove.ts';
import type { Json } from '../../src/profile/json.ts';
import { errorOf, identityPlanner, tooMany, unstorable } from './identity-plan.ts';

const plan = identityPlanner(usersExternalIdsRemove(), { isBlocked: () => true });
const refusal = (index: number, type: string) => ({ type, input_array: 'external_ids', index });

test('each id is accepted, also a blocked one, and is pending until its outcome is known', () => {
  expect(plan({ external_ids: ['ada', 7] })).toMatchObject({
    status: 202,
    body: { removed_ids: ['ada', '7'], removal_errors: [], message: 'success', pending: true },
    objects: [
      { kind: 'external_id_remove', external_id: 'ada' },
      { kind: 'external_id_remove', external_id: '7' },
    ],
  });
  expect(plan({ external_ids: 'ada' }).objects).toEqual([{ kind: 'external_id_remove', external_id: 'ada' }]);
});

test('the final answer lists removed ids, and in order the failures of request and store', () => {
  const { plan: made } = plan({ external_ids: ['ada', '', 'grace'] });
  expect(made!.replyOf!(new Map([[made!.objects[0]!.id, 'not deprecated']]))).toEqual({
    status: 201,
    body: {
      removed_ids: ['grace'],
      removal_errors: [
        refusal(0, 'not deprecated'),
        refusal(1, "each element of 'external_ids' must be a non-empty string"),
      ],
      message: 'success',
    },
  });
});

test.each(unstorable)('an id that cannot be stored is rejected: %j', (id, text) => {
  expect(errorOf(plan({ external_ids: [id] }))).toBe(`the value is not valid: ${text}`);
});

describe('the request is rejected as a whole', () => {
  test.each<[string, Json, string]>([
    ['without external_ids', {}, "'external_ids' is required"],
    ['with an empty array', { external_ids: [] }, "'external_ids' is not valid: it must not be empty"],
    ['with an object', { external_ids: {} }, "'external_ids' is not valid: it must be an array of strings"],
    ['with 51 ids', { external_ids: Array(51).fill('a') }, tooMany.ids],
    [
      'without a valid element',
      { external_ids: [''] },
      "Valid data must be provided in the 'external_ids' field.",
    ],
  ])('%s', (_case, body, message) => {
    expect(plan(body as Record<string, Json>)).toMatchObject({ status: 400, body: { message }, objects: [] });
  });
});
