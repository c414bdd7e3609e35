import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { findUnstorable, isUuid, uuidOf } from '../../src/profile/values.ts';

/** Texts in which \\u0000, halves of surrogate pairs and whole pairs are frequent. */
const hostileText = fc
  .array(fc.constantFrom('a', '"', '\\', '\u0000', '\ud83d', '\udc4d', '\ud83d\udc4d'), { maxLength: 80 })
  .map((units) => units.join(''));

function nested(depth: number): Json {
  let value: Json = 1;
  for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { a: value };
  return value;
}

describe('a value can be stored', () => {
  test.each<[string, Json]>([
    ['that is null', null],
    ['with emoji', { a: '👍🏽', '👍': ['x'] }],
    ['with the largest exact integer', 9007199254740991],
    ['with the smallest exact integer', -9007199254740991],
    ['with a fraction', 0.1],
    ['with -0', -0],
    ['with the smallest number', 5e-324],
    ['nested 50 deep', nested(50)],
    ['with keys of the prototype', JSON.parse('{"__proto__":{"a":1},"constructor":1,"toString":null}')],
  ])('%s', (_rule, value) => {
    expect(findUnstorable(value)).toBeUndefined();
  });
});

describe('a value cannot be stored', () => {
  test.each<[string, string, string]>([
    [
      'with \\u0000 in a string',
      '{"a":{"b":["x","\\u0000"]}}',
      "'a.b[1]' is not valid: it must not contain the character \\u0000",
    ],
    [
      'with \\u0000 in a key',
      '{"a":{"b\\u0000":1}}',
      "'a.b\\u0000' is not valid: its name must not contain the character \\u0000",
    ],
    [
      'with a lone high surrogate',
      '{"a":"\\ud800"}',
      "'a' is not valid: it must not contain half of a surrogate pair",
    ],
    [
      'with a lone low surrogate',
      '["x\\udc00y"]',
      "'[0]' is not valid: it must not contain half of a surrogate pair",
    ],
    [
      'with a lone surrogate in a key',
      '{"\\ud800":1}',
      "'\ufffd' is not valid: its name must not contain half of a surrogate pair",
    ],
    [
      'with a number past the range of a double',
      '{"a":1e309}',
      "'a' is not valid: the number is too large; send it as a string",
    ],
    ['with a negative one', '{"a":-1e309}', "'a' is not valid: the number is too large; send it as a string"],
    [
      'with an integer that lost digits',
      '{"a":9007199254740993}',
      "'a' is not valid: integers beyond 9007199254740991 lose digits; send it as a string",
    ],
    [
      'with a large number in exponent form',
      '{"a":1e300}',
      "'a' is not valid: integers beyond 9007199254740991 lose digits; send it as a string",
    ],
    [
      'that is a bad string itself',
      '"\\u0000"',
      'the value is not valid: it must not contain the character \\u0000',
    ],
    [
      'under the key __proto__',
      '{"__proto__":{"a":"\\u0000"}}',
      "'__proto__.a' is not valid: it must not contain the character \\u0000",
    ],
  ])('%s', (_rule, text, error) => {
    expect(findUnstorable(JSON.parse(text))?.error).toBe(error);
  });

  test('nested 51 deep', () => {
    const error = findUnstorable(nested(51))?.error;
    expect(error).toMatch(
      /^'\[0\]\.a.*…' is not valid: it must not nest deeper than 50$|^'a\[0\].*…' is not valid: it must not nest deeper than 50$/,
    );
  });

  test('with more than 10,000 keys in one object', () => {
    const object = (keys: number) => Object.fromEntries(Array.from({ length: keys }, (_, i) => [`k${i}`, i]));
    expect(findUnstorable({ a: object(10_000) })).toBeUndefined();
    expect(findUnstorable({ a: object(10_001) })?.error).toBe(
      "'a' is not valid: it must not have more than 10000 keys",
    );
  });
});

test('a number of 100,000 digits is rejected', () => {
  expect(findUnstorable(JSON.parse(`{"a":${'9'.repeat(100_000)}}`))?.error).toMatch(/too large/);
});

test('an error quotes only the beginning of a long key', () => {
  expect(findUnstorable({ ['k'.repeat(1_000_000)]: '\u0000' })!.error.length).toBeLessThan(200);
});

test('nesting 100,000 deep is rejected without overflowing the stack', () => {
  expect(findUnstorable(JSON.parse('['.repeat(100_000) + ']'.repeat(100_000)))?.error).toMatch(/deeper/);
});

test('storable values have no \\u0000, no lone surrogate and no number that JSON would change', () => {
  fc.assert(
    fc.property(fc.jsonValue(), hostileText, hostileText, (value, key, text) => {
      const object = Object.fromEntries([
        ['v', value as Json],
        [key, [text]],
      ]);
      const written = JSON.stringify(object);
      const storable = !/\\u0000|\\ud[89a-f]/.test(written) && !hasUnsafeInteger(object);
      expect(findUnstorable(object) === undefined).toBe(storable);
    }),
    { numRuns: 2000 },
  );
});

test('every error can be stored itself', () => {
  fc.assert(
    fc.property(hostileText, hostileText, (key, text) => {
      const error = findUnstorable(Object.fromEntries([[key, text]]))?.error;
      if (error !== undefined) expect(findUnstorable(error)).toBeUndefined();
    }),
    { numRuns: 2000 },
  );
});

function hasUnsafeInteger(value: Json): boolean {
  if (typeof value === 'number') return Number.isInteger(value) && !Number.isSafeInteger(value);
  return typeof value === 'object' && value !== null && Object.values(value).some(hasUnsafeInteger);
}

const UUID = '0198f000-0000-7000-8000-00000000000a';

describe('an id', () => {
  test('is sixteen bytes in lower case; an id from a caller may have any case', () => {
    for (const id of [UUID, '11111111-1111-1111-1111-111111111111', '00000000-0000-0000-0000-000000000000']) {
      expect([isUuid(id), uuidOf(id)]).toEqual([true, id]);
      expect([isUuid(id.toUpperCase()), uuidOf(id.toUpperCase())]).toEqual([!/[a-f]/.test(id), id]);
    }
  });

  test.each([
    ...['', UUID.replaceAll('-', ''), `${UUID}0`, `0${UUID}`, ` ${UUID}`, `${UUID}\n`, `{${UUID}}`],
    ...[UUID.slice(1), UUID.replace('a', 'g'), UUID.replace('-', ''), `urn:uuid:${UUID}`],
  ])('is not %j', (text) => {
    expect([isUuid(text), uuidOf(text)]).toEqual([false, undefined]);
  });

  test.each<[unknown]>([[undefined], [null], [5], [[UUID]], [{ toString: () => UUID }]])(
    'is a text, and not %j',
    (value) => {
      expect(isUuid(value)).toBe(false);
    },
  );
});
