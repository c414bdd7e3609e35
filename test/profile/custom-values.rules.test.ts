import { describe, expect, test } from 'vitest';
import { normalizeAttributes } from '../../src/profile/attributes.ts';
import type { Json } from '../../src/profile/json.ts';
import { context, deltaOf } from './normalized.ts';

function errorOf(value: Json, merge = false): string | undefined {
  const result = normalizeAttributes({ x: value, _merge_objects: merge }, context);
  return 'error' in result ? result.error : undefined;
}

const range = (length: number) => Array.from({ length }, (_, i) => i);

describe('a custom attribute is set', () => {
  test.each<[string, Json]>([
    ['to a string', 'a b '],
    ['to an empty string', ''],
    ['to a string of 255 characters', 'x'.repeat(255)],
    ['to a string of 255 emoji', '👍'.repeat(255)],
    ['to a boolean', false],
    ['to an integer', 5],
    ['to a fraction', -1.5],
    ['to a date as it was sent', '01/31/2026'],
    ['to null, which removes it', null],
    ['to an empty array', []],
    ['to an array of strings', ['a', 'b']],
    ['to an array of different scalars', ['1', 1, true]],
    ['to an empty object', {}],
    ['to an object', { a: { b: [1, { c: null }] } }],
    ['to an array of objects', [{ a: 1 }, { a: 1 }]],
    ['to an object that has inc among others', { inc: 1, a: 2 }],
    ['to an object that has add among others', { add: ['x'], a: 2 }],
  ])('%s', (_rule, value) => {
    expect(deltaOf({ x: value })).toEqual({ set: { x: value } });
  });

  test('to an array with each element once, at its last position', () => {
    expect(deltaOf({ x: ['a', 'b', 'a', 1, '1', 1] })).toEqual({ set: { x: ['b', 'a', '1', 1] } });
  });

  test('to the newest 500 elements of an array', () => {
    expect(deltaOf({ x: range(501) })).toEqual({ set: { x: range(501).slice(1) } });
    expect(deltaOf({ x: ['a', ...range(500), 7] })).toEqual({
      set: { x: [...range(500).filter((i) => i !== 7), 7] },
    });
  });
});

describe('a custom attribute rejects the object', () => {
  const mixed = "'x' is not valid: an array must hold strings, numbers and booleans, or only objects";
  test.each<[string, Json, string]>([
    ['with null in an array', ['a', null], mixed],
    ['with an array in an array', [['a']], mixed],
    ['with scalars and objects in one array', [{ a: 1 }, 'a'], mixed],
    ['with an increment that is not a number', { inc: '1' }, "'x' is not valid: 'inc' must be a number"],
    ['with an addition of an object', { add: [{ a: 1 }] }, `'x' is not valid: 'add': ${mixed.slice(18)}`],
    ['with a removal of null', { remove: null }, `'x' is not valid: 'remove': ${mixed.slice(18)}`],
    ['with $add of scalars', { $add: ['a'] }, "'x' is not valid: '$add' must be an array of objects"],
    ['with $add of null', { $add: null }, "'x' is not valid: '$add' must be an array of objects"],
    [
      'with $remove without a key',
      { $remove: [{ $identifier_value: 1 }] },
      "'x' is not valid: '$remove' needs an '$identifier_key' and an '$identifier_value'",
    ],
    [
      'with $remove without a value',
      { $remove: [{ $identifier_key: 'id' }] },
      "'x' is not valid: '$remove' needs an '$identifier_key' and an '$identifier_value'",
    ],
    [
      'with $update without an object',
      { $update: [{ $identifier_key: 'id', $identifier_value: 1 }] },
      "'x' is not valid: '$update' needs an object as '$new_object'",
    ],
    [
      'with more than 100 elements in $remove',
      { $remove: range(101).map((i) => ({ $identifier_key: 'id', $identifier_value: i })) },
      "'x' is not valid: '$remove' must have at most 100 elements",
    ],
    [
      'with an object of more than 100 KB',
      Object.fromEntries(range(1000).map((i) => [`k${i}`, 'x'.repeat(100)])),
      "'x' is not valid: it must be at most 102400 bytes of JSON",
    ],
    [
      'with an array of objects of more than 100 KB',
      range(1000).map(() => ({ a: 'x'.repeat(100) })),
      "'x' is not valid: it must be at most 102400 bytes of JSON",
    ],
    [
      'with operations of more than 100 KB',
      { $add: range(1000).map(() => ({ a: 'x'.repeat(100) })) },
      "'x' is not valid: it must be at most 102400 bytes of JSON",
    ],
  ])('%s', (_rule, value, error) => {
    expect(errorOf(value)).toBe(error);
    expect(errorOf(value, true)).toBe(error);
  });

  test('with an empty name', () => {
    expect(normalizeAttributes({ '': 1 }, context)).toEqual({
      error: 'the name of an attribute must not be empty',
      reason: 'invalid',
      field: '',
    });
  });
});

describe('an array of objects', () => {
  const match = { $identifier_key: 'id', $identifier_value: 1 };

  test('accepts additions, removals and updates', () => {
    const sent = {
      $add: [{ id: 2, at: { $time: '2026-01-31' } }],
      $remove: [match],
      $update: [{ ...match, $new_object: { id: 1, name: 'b' } }],
    };
    expect(deltaOf({ x: sent })).toEqual({
      change: {
        x: {
          objects: {
            merge: false,
            add: [{ id: 2, at: '2026-01-31T00:00:00.000Z' }],
            remove: [{ key: 'id', value: 1 }],
            update: [{ key: 'id', value: 1, new_object: { id: 1, name: 'b' } }],
          },
        },
      },
    });
  });
  test('accepts a single element without its array', () => {
    expect(deltaOf({ x: { $add: { id: 2 } }, y: { $remove: match } })).toEqual({
      change: {
        x: { objects: { merge: false, add: [{ id: 2 }] } },
        y: { objects: { merge: false, remove: [{ key: 'id', value: 1 }] } },
      },
    });
  });
  test('merges updates with _merge_objects', () => {
    const { change } = deltaOf({
      _merge_objects: true,
      x: { $update: [{ ...match, $new_object: { a: 1 } }] },
    });
    expect(change).toEqual({
      x: { objects: { merge: true, update: [{ key: 'id', value: 1, new_object: { a: 1 } }] } },
    });
  });
  test('is replaced by a plain array, also with _merge_objects', () => {
    expect(deltaOf({ _merge_objects: true, x: [{ a: 1 }] })).toEqual({ set: { x: [{ a: 1 }] } });
  });
});

describe('an operation on the stored value', () => {
  test.each<[string, Json, object]>([
    ['increments', { inc: -2 }, { inc: -2 }],
    ['adds to an array', { add: ['a', 'b'] }, { array: { add: ['a', 'b'] } }],
    ['adds a scalar to an array', { add: 'a' }, { array: { add: ['a'] } }],
    ['removes from an array', { remove: [1] }, { array: { remove: [1] } }],
    ['adds and removes', { remove: 'b', add: 'a' }, { array: { add: ['a'], remove: ['b'] } }],
  ])('%s', (_rule, value, change) => {
    expect(deltaOf({ x: value })).toEqual({ change: { x: change } });
  });
});

describe('an object', () => {
  test('is merged with _merge_objects', () => {
    expect(deltaOf({ _merge_objects: true, x: { a: { b: null } }, y: 1, z: null })).toEqual({
      change: { x: { merge: { a: { b: null } } } },
      set: { y: 1, z: null },
    });
  });
  test('has its $time values in ISO 8601', () => {
    expect(
      deltaOf({ x: { a: { $time: '2026-01-31 13:00:00 +01:00' }, b: [{ $time: '01/31/2026' }], c: 1 } }),
    ).toEqual({
      set: { x: { a: '2026-01-31T12:00:00.000Z', b: ['2026-01-31T00:00:00.000Z'], c: 1 } },
    });
  });
  test('that is only a $time is a date, also with _merge_objects', () => {
    for (const _merge_objects of [true, false]) {
      expect(deltaOf({ _merge_objects, x: { $time: '2026-01-31' } })).toEqual({
        set: { x: '2026-01-31T00:00:00.000Z' },
      });
    }
  });

  describe.each([true, false])(
    'is dropped without the other attributes, with merge %s, because of',
    (merge) => {
      test.each<[string, Json]>([
        ['a $time that is null', { a: { $time: null }, b: 1 }],
        ['a $time that is not a date', { a: [{ $time: 'soon' }] }],
        ['a $time past the year 3000', { a: { $time: '3001-01-01' } }],
        ['a $time with a neighbour', { a: { $time: '2026-01-31', b: 1 } }],
        ['a $time that is null as the attribute', { $time: null }],
        ['a key with a space', { 'a b': 1 }],
        ['a key with a dot', { a: { 'a.b': 1 } }],
        ['a key with a $', { a$: 1 }],
        ['an empty key', { '': 1 }],
        ['an operation among data', { $add: [{ a: 1 }], b: 1 }],
        ['a bad value in $add', { $add: [{ 'a b': 1 }] }],
        ['a date as an object of $add', { $add: [{ $time: '2026-01-31' }] }],
        [
          'a bad value in $update',
          { $update: [{ $identifier_key: 'a', $identifier_value: 1, $new_object: { $time: null } }] },
        ],
        ['a bad value in an array of objects', [{ a: 1 }, { 'a.b': 1 }]],
      ])('%s', (_rule, value) => {
        expect(
          normalizeAttributes({ _merge_objects: merge, first_name: 'Ada', x: value, y: 1 }, context),
        ).toEqual({
          delta: { standard: { first_name: 'Ada' }, set: { y: 1 } },
          warnings: [expect.stringMatching(/^'x' is not valid: it was omitted: a key in it is empty/)],
        });
      });
    },
  );
});

describe('names of the prototype', () => {
  const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', '__defineGetter__'];

  test.each(names)('%s is an attribute like any other', (name) => {
    for (const value of ['1', '{"a":1}', '[{"a":1}]', '{"inc":1}', '{"add":["a"]}', '{"$add":[{"a":1}]}']) {
      const object = JSON.parse(`{"${name}":${value}}`);
      const { set, change } = deltaOf(object);
      expect(Object.keys(set ?? change!)).toEqual([name]);
      expect(Object.getPrototypeOf(set ?? change)).toBe(Object.prototype);
    }
    expect(({} as Record<string, unknown>).a).toBeUndefined();
  });

  test.each(names)('%s is a key of an object like any other', (name) => {
    const object = JSON.parse(`{"x":{"${name}":{"b":{"$time":"2026-01-31"}}}}`);
    expect(JSON.stringify(deltaOf(object))).toBe(
      `{"set":{"x":{"${name}":{"b":"2026-01-31T00:00:00.000Z"}}}}`,
    );
  });
});
