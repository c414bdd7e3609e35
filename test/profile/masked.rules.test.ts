import { expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { MASK, maskName, maskValues } from '../../src/profile/masked.ts';
import { Unread } from '../../src/profile/values.ts';

test('a masked object keeps its names and its shape without its values', () => {
  const sent = {
    ...{ external_id: 'ada', age: 37, vip: true, note: null, email: 'ada@example.com' },
    nested: { city: 'Berlin', list: ['one', { deep: 2 }] },
  };
  const shape = maskValues(sent);
  expect(shape).toEqual({
    ...{ external_id: MASK, age: MASK, vip: MASK, note: MASK, email: MASK },
    nested: { city: MASK, list: [MASK, { deep: MASK }] },
  });
  expect(JSON.stringify(shape)).not.toMatch(/ada|37|true|null|Berlin|one|2/);
});

test.each([
  'ada@example.com',
  '+49 30 123456',
  'card 4111111111111111',
  'x'.repeat(65),
  'a\u0000b',
  '\ud800',
])('the name %j is masked, because it may be personal data or cannot be stored', (name) => {
  expect(maskName(name)).toBe(MASK);
  expect(maskValues({ [name]: 1 })).toEqual({ [MASK]: MASK });
});

test.each(['first_name', 'favourite colour', 'größe', 'utm:source', 'step2'])(
  'the name %j is kept',
  (name) => {
    expect(maskName(name)).toBe(name);
  },
);

test('a masked object has at most 60 names and four levels, however large the sent one is', () => {
  let deep: Json = 'end';
  for (let level = 0; level < 45; level++) deep = { deep };
  expect(JSON.stringify(maskValues(deep)).match(/deep/g)).toHaveLength(4);
  const wide = Object.fromEntries(
    Array.from({ length: 5000 }, (_, n) => [`name${'abcdefghij'[n % 10]}${n}`, [n]]),
  );
  expect(JSON.stringify(maskValues(wide)).length).toBeLessThan(2000);
});

test('a value that is not an object, and an object that was not read, become one mask', () => {
  for (const value of [
    'ada',
    7,
    null,
    new Unread('it must not nest deeper than 50', 'digest') as unknown as Json,
  ])
    expect(maskValues(value)).toBe(MASK);
});
