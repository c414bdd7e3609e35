import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { AttributeChange } from '../../src/profile/attribute-rule.ts';
import { DraftAttribute } from '../../src/profile/draft-attribute.ts';
import { Journal } from '../../src/profile/draft-records.ts';
import type { Json } from '../../src/profile/json.ts';

function applyChange(current: Json | undefined, change: AttributeChange): Json | undefined {
  const draft = new DraftAttribute(current);
  const journal = new Journal();
  // An object with too many steps is rejected, with all its changes.
  if (draft.apply(change, journal) === 'steps') journal.undo();
  return draft.value;
}

const range = (length: number) => Array.from({ length }, (_, i) => i);
const stored = fc.option(fc.jsonValue({ maxDepth: 3 }) as fc.Arbitrary<Json>, { nil: undefined });
const scalars = fc.array(fc.oneof(fc.constantFrom<Json>('a', 'b', 'c', '1', 1, 2, true)), { maxLength: 8 });
const objects = fc.dictionary(
  fc.constantFrom('a', 'b', '__proto__', 'constructor'),
  fc.jsonValue({ maxDepth: 2 }) as fc.Arbitrary<Json>,
);

describe('inc', () => {
  test.for<[string, Json | undefined, number, Json]>([
    ['adds to a number', 5, 2, 7],
    ['subtracts from a number', 5, -7, -2],
    ['counts a missing value as 0', undefined, 3, 3],
    ['treats a value that is not a number as 0', '5', 3, 3],
  ])('%s', ([_rule, current, inc, result]) => {
    expect(applyChange(current, { inc })).toBe(result);
  });
  test.for<[string, Json | undefined, number]>([
    ['to 2^53', 9007199254740991, 1],
    ['to -2^53', -9007199254740991, -1],
    ['from a number beyond 2^53 to another one', 9007199254740996, 4],
    ['out of the range of a double', 1e308, 1e308],
  ])('an increment %s is ignored and reported', ([_rule, current, inc]) => {
    const draft = new DraftAttribute(current);
    expect(draft.apply({ inc }, new Journal())).toBe('number');
    expect(draft.value).toBe(current);
    expect(draft.isChanged).toBe(false);
  });
  test('an increment up to 2^53 - 1, and down from beyond it, is exact', () => {
    expect(applyChange(9007199254740990, { inc: 1 })).toBe(9007199254740991);
    expect(applyChange(9007199254740996, { inc: -100 })).toBe(9007199254740896);
    expect(applyChange(0.5, { inc: 0.25 })).toBe(0.75);
  });
  test('is undone by its opposite', () => {
    const integers = fc.integer({ min: -1e9, max: 1e9 });
    fc.assert(
      fc.property(integers, integers, (current, inc) => {
        expect(applyChange(applyChange(current, { inc }), { inc: -inc })).toBe(current);
      }),
    );
  });
});

describe('array', () => {
  test.for<[string, Json | undefined, { add?: Json[]; remove?: Json[] }, Json | undefined]>([
    ['adds to an array', ['a'], { add: ['b'] }, ['a', 'b']],
    ['starts an array', undefined, { add: ['b'] }, ['b']],
    ['replaces a value that is not an array', 'a', { add: ['b'] }, ['b']],
    ['moves an existing element to the end', ['a', 'b', 'c'], { add: ['a'] }, ['b', 'c', 'a']],
    ['removes from an array', ['a', 'b', 'a'], { remove: ['a'] }, ['b']],
    ['removes after it adds', ['a'], { add: ['b', 'c'], remove: ['b'] }, ['a', 'c']],
    ['distinguishes 1 from "1"', [1, '1'], { remove: [1] }, ['1']],
    ['keeps an array that has become empty', ['a'], { remove: ['a'] }, []],
    ['leaves an absent value absent when it removes', undefined, { remove: ['a'] }, undefined],
    ['leaves a value that is not an array when it removes', 'gold', { remove: ['gold'] }, 'gold'],
    [
      'leaves a value that is not an array when it adds no element',
      'gold',
      { add: [], remove: ['gold'] },
      'gold',
    ],
  ])('%s', ([_rule, current, array, result]) => {
    expect(applyChange(current, { array })).toEqual(result);
  });
  test('drops the oldest elements past 500', () => {
    expect(applyChange(range(500), { array: { add: ['new'] } })).toEqual([...range(500).slice(1), 'new']);
  });
  test('adding the same elements again leaves the array unchanged', () => {
    fc.assert(
      fc.property(stored, scalars, (current, add) => {
        const once = applyChange(current, { array: { add } });
        expect(applyChange(once, { array: { add } })).toEqual(once);
      }),
    );
  });
  test('after a removal the elements are absent, and after an addition each occurs once', () => {
    fc.assert(
      fc.property(scalars, scalars, scalars, (current, add, remove) => {
        const result = applyChange(current, { array: { add, remove } }) as Json[];
        expect(result.some((element) => remove.includes(element))).toBe(false);
        expect(new Set(result).size).toBe(result.length);
        for (const element of add) expect(result.includes(element)).toBe(!remove.includes(element));
      }),
    );
  });
});

describe('merge', () => {
  test.for<[string, Json | undefined, Record<string, Json>, Json]>([
    ['adds keys', { a: 1 }, { b: 2 }, { a: 1, b: 2 }],
    ['replaces values', { a: 1 }, { a: 2 }, { a: 2 }],
    ['goes deep', { a: { b: 1, c: 2 } }, { a: { b: 3 } }, { a: { b: 3, c: 2 } }],
    ['replaces arrays', { a: [1, 2] }, { a: [3] }, { a: [3] }],
    ['removes a key by null', { a: 1, b: 2 }, { a: null }, { b: 2 }],
    ['removes a deep key by null', { a: { b: 1, c: 2 } }, { a: { b: null } }, { a: { c: 2 } }],
    ['keeps no null in a new object', undefined, { a: { b: null, c: 1 } }, { a: { c: 1 } }],
    ['starts an object', undefined, { a: 1 }, { a: 1 }],
    ['replaces a value that is not an object', [1], { a: 1 }, { a: 1 }],
    ['replaces a scalar by an object', { a: 1 }, { a: { b: 1 } }, { a: { b: 1 } }],
  ])('%s', ([_rule, current, merge, result]) => {
    expect(applyChange(current, { merge })).toEqual(result);
  });
  test('merging the same object again leaves the value unchanged', () => {
    fc.assert(
      fc.property(stored, objects, (current, merge) => {
        const once = applyChange(current, { merge });
        expect(applyChange(once, { merge })).toEqual(once);
      }),
    );
  });
  test('keys of the prototype are data', () => {
    const merge = JSON.parse('{"__proto__":{"a":1},"constructor":{"b":2},"toString":null}');
    const merged = applyChange({ c: 3 }, { merge }) as object;
    expect(JSON.stringify(merged)).toBe('{"c":3,"__proto__":{"a":1},"constructor":{"b":2}}');
    expect(Object.getPrototypeOf(merged)).toBe(Object.prototype);
    expect(JSON.stringify(applyChange(merged as Json, { merge: JSON.parse('{"__proto__":null}') }))).toBe(
      '{"c":3,"constructor":{"b":2}}',
    );
    expect(({} as Record<string, unknown>).a).toBeUndefined();
  });
  test('that would enlarge the object beyond 100 KB is ignored', () => {
    const large = (key: string) => Object.fromEntries(range(300).map((i) => [`${key}${i}`, 'x'.repeat(200)]));
    const current = large('a');
    expect(applyChange(current, { merge: large('b') })).toBe(current);
    expect(applyChange(current, { merge: { a: 1 } })).toEqual({ ...current, a: 1 });
  });
});

describe('objects', () => {
  const cars: Json = [
    { id: 1, name: 'a' },
    { id: 2, name: 'b', tags: { x: 1 } },
    { id: 1, name: 'c' },
  ];
  const one = { key: 'id', value: 1 };

  test.for<
    [
      string,
      Json | undefined,
      Omit<Extract<AttributeChange, { objects: unknown }>['objects'], never>,
      Json | undefined,
    ]
  >([
    ['adds to the end', [{ id: 1 }], { merge: false, add: [{ id: 1 }] }, [{ id: 1 }, { id: 1 }]],
    ['starts an array', undefined, { merge: false, add: [{ id: 1 }] }, [{ id: 1 }]],
    ['replaces a value that is not an array', { a: 1 }, { merge: false, add: [{ id: 1 }] }, [{ id: 1 }]],
    ['removes every match', cars, { merge: false, remove: [one] }, [{ id: 2, name: 'b', tags: { x: 1 } }]],
    ['removes elements of the same change', [], { merge: false, add: [{ id: 1 }], remove: [one] }, []],
    [
      'replaces every match',
      cars,
      { merge: false, update: [{ ...one, new_object: { id: 9 } }] },
      [{ id: 9 }, { id: 2, name: 'b', tags: { x: 1 } }, { id: 9 }],
    ],
    [
      'merges into every match',
      cars,
      { merge: true, update: [{ key: 'id', value: 2, new_object: { tags: { y: 2 } } }] },
      [
        { id: 1, name: 'a' },
        { id: 2, name: 'b', tags: { x: 1, y: 2 } },
        { id: 1, name: 'c' },
      ],
    ],
    [
      'updates elements of the same change, after it removes',
      [{ id: 1 }],
      {
        merge: true,
        add: [{ id: 3 }],
        remove: [one],
        update: [{ key: 'id', value: 3, new_object: { a: 1 } }],
      },
      [{ id: 3, a: 1 }],
    ],
    [
      'applies updates one after the other',
      [{ id: 1 }],
      {
        merge: false,
        update: [
          { ...one, new_object: { id: 2 } },
          { key: 'id', value: 2, new_object: { id: 3 } },
        ],
      },
      [{ id: 3 }],
    ],
    [
      'cannot delete a property by an update that merges',
      [{ id: 1, name: 'a', tags: { x: 1 } }],
      { merge: true, update: [{ ...one, new_object: { name: null, other: null, tags: { x: null, y: 2 } } }] },
      [{ id: 1, name: 'a', tags: { x: 1, y: 2 } }],
    ],
    ['leaves an absent value absent when it removes', undefined, { merge: false, remove: [one] }, undefined],
    ['leaves a value that is not an array when it removes', 'gold', { merge: false, remove: [one] }, 'gold'],
    [
      'leaves a value that is not an array when it updates',
      { id: 1 },
      { merge: true, update: [{ ...one, new_object: { a: 1 } }] },
      { id: 1 },
    ],
    ['distinguishes 1 from "1"', [{ id: '1' }], { merge: false, remove: [one] }, [{ id: '1' }]],
    ['keeps elements that are not objects', ['a', { id: 1 }], { merge: false, remove: [one] }, ['a']],
    [
      'ignores inherited members',
      [{ id: 1 }],
      { merge: false, remove: [{ key: 'constructor', value: 1 }] },
      [{ id: 1 }],
    ],
  ])('%s', ([_rule, current, change, result]) => {
    expect(applyChange(current, { objects: change })).toEqual(result);
  });
  test('a change that would enlarge the array beyond 100 KB is ignored', () => {
    const current = range(10_000).map(() => ({ i: 1 }));
    const new_object = Object.fromEntries(range(2000).map((i) => [`k${i}`, i]));
    for (const merge of [true, false]) {
      expect(
        applyChange(current, { objects: { merge, update: [{ key: 'i', value: 1, new_object }] } }),
      ).toEqual(current);
    }
    expect(applyChange(current, { objects: { merge: false, add: current } })).toEqual(current);
  });
});

test('every change leaves the stored value untouched and has a result that JSON can represent', () => {
  const keys = fc.constantFrom('a', 'b', '__proto__', 'constructor');
  const match = fc.record({ key: keys, value: fc.constantFrom<Json>(1, 'x', true) });
  const update = fc.record({ key: keys, value: fc.constantFrom<Json>(1, 'x', true), new_object: objects });
  const changes: fc.Arbitrary<AttributeChange> = fc.oneof(
    fc.record({ inc: fc.double({ noNaN: true, noDefaultInfinity: true }) }),
    fc.record({ array: fc.record({ add: scalars, remove: scalars }, { requiredKeys: [] }) }),
    fc.record({ merge: objects }),
    fc.record({
      objects: fc.record(
        { add: fc.array(objects), remove: fc.array(match), update: fc.array(update), merge: fc.boolean() },
        { requiredKeys: ['merge'] },
      ),
    }),
  ) as fc.Arbitrary<AttributeChange>;
  fc.assert(
    fc.property(stored, changes, (current, change) => {
      const before = JSON.stringify(current);
      const result = applyChange(current, change);
      expect(JSON.stringify(current)).toBe(before);
      if (result !== undefined) expect(JSON.parse(JSON.stringify(result))).toEqual(unsigned(result));
    }),
    { numRuns: 1000 },
  );
});

/** JSON has one zero. */
function unsigned(value: Json): Json {
  return JSON.parse(JSON.stringify(value));
}
