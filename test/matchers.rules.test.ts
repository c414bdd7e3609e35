import { expect, test } from 'vitest';

test.each<[string, unknown, object]>([
  ['a pattern', 'anything', { message: /something else/ }],
  ['a pattern', null, { message: /null/ }],
  ['an empty object', 'text', { message: {} }],
  ['an empty object', null, { message: {} }],
])('where %s is expected, %j is rejected', (_, message, expected) => {
  expect(() => expect({ message }).toMatchObject(expected)).toThrow();
  expect(() => expect([{ message }]).toEqual([expect.objectContaining(expected)])).toThrow();
});

test('matchers, objects and their members are compared as usual', () => {
  const given = { message: 'text', list: [{ at: new Date(0), more: 1 }], none: null };
  expect(given).toMatchObject({ message: expect.stringMatching(/^t/), list: [{ at: new Date(0) }] });
  expect(given).toMatchObject({ list: expect.any(Array), none: null });
  expect({ pattern: /a/, of: {} }).toMatchObject({ pattern: /a/, of: {} });
});
