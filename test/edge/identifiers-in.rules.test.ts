import { describe, expect, test } from 'vitest';
import { identifiersIn } from '../../src/edge/identifiers-in.ts';
import type { Json } from '../../src/profile/json.ts';

const id = '0123456789abcdef01234567';
const alias = { alias_label: 'crm', alias_name: 'A1' };

describe('identifiers in a refused object', () => {
  test.each<[string, string, Json, unknown[]]>([
    ['an event', 'events', { external_id: 7, email: 'ada@gmail.com' }, [{ external_id: '7' }]],
    [
      'attributes by email',
      'attributes',
      { email: 'Ada@Gmail.com', phone: 'no' },
      [{ email: 'ada@gmail.com' }],
    ],
    ['a purchase by service id', 'purchases', { braze_id: id }, [{ service_id: id }]],
    ['an object without identifier', 'events', { name: 'seen' }, []],
    ['an object with an invalid identifier', 'events', { external_id: ['a'] }, []],
    ['a string', 'external_ids', 'ada', [{ external_id: 'ada' }]],
    ['a service id', 'braze_ids', id, [{ service_id: id }]],
    ['an email of a list', 'email', 'ada@gmail.com', [{ email: 'ada@gmail.com' }]],
    ['an element that is no text', 'external_ids', [['ada']], []],
    ['null', 'events', null, []],
    [
      'a new alias',
      'user_aliases',
      { external_id: 'ada', ...alias },
      [{ external_id: 'ada' }, { user_alias: alias }],
    ],
    [
      'an alias update',
      'alias_updates',
      { alias_label: 'crm', old_alias_name: 'A1', new_alias_name: '' },
      [{ user_alias: alias }],
    ],
    [
      'an identify',
      'aliases_to_identify',
      { external_id: 'ada', user_alias: alias },
      [{ external_id: 'ada' }, { user_alias: alias }],
    ],
    [
      'a merge',
      'merge_updates',
      { identifier_to_merge: { external_id: 'a' }, identifier_to_keep: { email: 'bea@gmail.com' } },
      [{ external_id: 'a' }, { email: 'bea@gmail.com' }],
    ],
    [
      'a rename',
      'external_id_renames',
      { current_external_id: 'old', new_external_id: '' },
      [{ external_id: 'old' }],
    ],
    [
      'a group with many users',
      'subscription_groups',
      { external_ids: ['a', 'b', 'c', 'd', 'e'] },
      ['a', 'b', 'c', 'd'].map((external_id) => ({ external_id })),
    ],
  ])('are found in %s', (...[, inputArray, object, expected]) => {
    expect(identifiersIn(object, { inputArray, serviceIdField: 'braze_id' })).toEqual(expected);
  });
});
