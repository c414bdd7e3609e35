import { expect, test } from 'vitest';
import { fieldLabel, fieldName, leavesOf, withValues } from '../../src/board/pages/failed-field.ts';

test('member names with dots and tildes have a form field of their own', () => {
  const object = { properties: { 'a.b': 1, a: { b: 2 }, 'a~1b': 3, 'a~.b': 4 } };
  const leaves = leavesOf(object, '');
  expect(new Set(leaves.map(fieldName)).size).toBe(4);
  expect(leaves.map(fieldLabel)).toEqual([
    ...['properties."a.b"', 'properties.a.b', 'properties.a~1b', 'properties."a~.b"'],
  ]);
  const changed = leaves.map((leaf) => ({ ...leaf, value: fieldName(leaf) }));
  expect(withValues(object, changed)).toEqual({
    properties: {
      ...{ 'a.b': 'set.properties.a~1b', a: { b: 'set.properties.a.b' } },
      ...{ 'a~1b': 'set.properties.a~01b', 'a~.b': 'set.properties.a~0~1b' },
    },
  });
});
