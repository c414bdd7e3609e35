import { describe, expect, test } from 'vitest';
import { normalizeAttributes } from '../../src/profile/attributes.ts';
import type { Json } from '../../src/profile/json.ts';
import { context } from './normalized.ts';

const range = (length: number) => Array.from({ length }, (_, i) => i);

describe('names and strings of more than 255 characters', () => {
  const strict = { ...context, longStrings: 'refuse' as const };
  const x = 'x'.repeat(255);
  const match = (value: string) => ({ $identifier_key: `k${x}`, $identifier_value: value });
  const cutMatch = { key: `k${x.slice(1)}`, value: x };

  test.each<[string, Json, object]>([
    ['a string', `${x}yz`, { set: { a: x } }],
    ['a string of emoji, none of them split', '👍'.repeat(256), { set: { a: '👍'.repeat(255) } }],
    [
      'strings in an array, once each when they are the same then',
      ['b', `${x}1`, `${x}2`],
      { set: { a: ['b', x] } },
    ],
    [
      'strings added and removed',
      { add: [`${x}1`], remove: `${x}2` },
      { change: { a: { array: { add: [x], remove: [x] } } } },
    ],
    [
      'strings and keys in an object',
      { [`k${x}`]: [{ b: `${x}1` }] },
      { set: { a: { [`k${x.slice(1)}`]: [{ b: x }] } } },
    ],
    ['strings in an array of objects', [{ b: `${x}1` }], { set: { a: [{ b: x }] } }],
    [
      'strings that an operation searches for or inserts',
      {
        $add: [{ b: `${x}1` }],
        $remove: [match(`${x}1`)],
        $update: [{ ...match(`${x}2`), $new_object: { b: `${x}3` } }],
      },
      {
        change: {
          a: {
            objects: {
              merge: false,
              add: [{ b: x }],
              remove: [cutMatch],
              update: [{ ...cutMatch, new_object: { b: x } }],
            },
          },
        },
      },
    ],
  ])('%s is cut, with a warning', (_what, value, delta) => {
    expect(normalizeAttributes({ a: value, n: 1 }, context)).toEqual({
      delta: { ...delta, set: { ...(delta as { set?: object }).set, n: 1 } },
      warnings: ["'a' was cut to 255 characters"],
    });
    expect(normalizeAttributes({ a: value, n: 1 }, strict)).toEqual({
      error: "'a' is not valid: a string must be at most 255 characters",
      reason: 'too_large',
      field: 'a',
    });
  });

  test('a name is cut, so that the same long name is always the same attribute', () => {
    const long = 'n'.repeat(300);
    const quoted = `'${'n'.repeat(64)}…'`;
    expect(normalizeAttributes({ [long]: 1 }, context)).toEqual({
      delta: { set: { ['n'.repeat(255)]: 1 } },
      warnings: [`${quoted} was cut to 255 characters in its name`],
    });
    expect(normalizeAttributes({ [long]: { inc: 1 } }, context)).toMatchObject({
      delta: { change: { ['n'.repeat(255)]: { inc: 1 } } },
    });
    expect(normalizeAttributes({ [long]: `${x}y` }, context)).toMatchObject({
      warnings: [`${quoted} was cut to 255 characters in its name and its value`],
    });
    expect(normalizeAttributes({ [long]: 1 }, strict)).toEqual({
      error: `${quoted} is not valid: the name of an attribute must be at most 255 characters`,
      reason: 'too_large',
      field: quoted.slice(1, -1),
    });
  });

  test.for<[string, Json, Json, object]>([
    ['both set', 1, 2, { set: { [x]: 2 } }],
    ['one set, then one changed', 1, { inc: 2 }, { set: {}, change: { [x]: { inc: 2 } } }],
    ['one changed, then one set', { inc: 1 }, 2, { change: {}, set: { [x]: 2 } }],
  ])('the last of two names that are equal once they are cut counts: %s', ([_how, first, last, delta]) => {
    const message = `'${'x'.repeat(64)}…' is the name of two members when it is cut to 255 characters: the last one counts`;
    for (const [one, other] of [
      [`${x}1`, `${x}2`],
      [x, `${x}2`],
      [`${x}1`, x],
    ] as const) {
      const result = normalizeAttributes({ [one]: first, [other]: last }, context);
      expect(result).toMatchObject({ delta });
      expect((result as { warnings?: string[] }).warnings?.at(-1)).toBe(message);
    }
  });

  test('255 characters cause no warning', () => {
    expect(normalizeAttributes({ [x]: x, b: [x], c: { [x]: x } }, context)).not.toHaveProperty('warnings');
  });

  test('are counted with their original length against the size limit', () => {
    const error = "'a' is not valid: it must be at most 102400 bytes of JSON";
    for (const value of [{ b: 'y'.repeat(102_400) }, { $add: [{ b: 'y'.repeat(102_400) }] }]) {
      expect(normalizeAttributes({ a: value }, context)).toEqual({ error, reason: 'too_large', field: 'a' });
    }
  });

  test('an object has at most 10 warnings, and one about further warnings', () => {
    const object = Object.fromEntries(range(50).map((i) => [`a${i}`, 'y'.repeat(256)]));
    const { warnings } = normalizeAttributes(object, context) as { warnings?: string[] };
    expect(warnings).toHaveLength(11);
    expect(warnings?.at(-1)).toBe('further fields were cut or omitted');
  });
});
