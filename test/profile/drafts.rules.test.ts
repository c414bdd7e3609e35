import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { AttributeChange } from '../../src/profile/attribute-rule.ts';
import { DraftAttribute } from '../../src/profile/draft-attribute.ts';
import { Journal } from '../../src/profile/draft-records.ts';
import { type Json, storedBytes } from '../../src/profile/json.ts';
import { changedPlainly } from '../model/custom-attribute-model.ts';
import { lengthOf } from '../setup/length.ts';

const keys = fc.constantFrom('a', 'b', 'id', '__proto__', 'constructor');
const scalar = fc.constantFrom<Json>('x', 'y', '1', 1, 2, true, 0);
const value: fc.Arbitrary<Json> = fc.letrec<{ value: Json; record: Json }>((tie) => ({
  record: fc.dictionary(keys, tie('value'), { maxKeys: 3 }) as fc.Arbitrary<Json>,
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    scalar,
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 2 }) as fc.Arbitrary<Json>,
    tie('record'),
  ),
})).value;
const record = fc.dictionary(keys, value, { maxKeys: 4 });
const stored = fc.option(
  fc.oneof(
    value,
    record,
    fc.array(fc.oneof({ weight: 3, arbitrary: record }, scalar), { maxLength: 8 }) as fc.Arbitrary<Json>,
  ),
  { nil: undefined },
);
const scalars = fc.array(scalar, { maxLength: 6 });
const match = fc.record({ key: keys, value: scalar });
const change = fc.oneof(
  { weight: 1, arbitrary: fc.record({ inc: fc.integer({ min: -3, max: 3 }) }) },
  {
    weight: 3,
    arbitrary: fc.record({ array: fc.record({ add: scalars, remove: scalars }, { requiredKeys: [] }) }),
  },
  { weight: 3, arbitrary: fc.record({ merge: record }) },
  {
    weight: 8,
    arbitrary: fc.record({
      objects: fc.record(
        {
          add: fc.array(record, { maxLength: 4 }),
          remove: fc.array(match, { maxLength: 3 }),
          update: fc.array(fc.record({ key: keys, value: scalar, new_object: record }), { maxLength: 3 }),
          merge: fc.boolean(),
        },
        { requiredKeys: ['merge'] },
      ),
    }),
  },
) as fc.Arbitrary<AttributeChange>;

/**
 * Copies as the store does: an object that occurs twice becomes two objects (structuredClone would keep one).
 */
const copy = <Value extends Json | undefined | object>(given: Value): Value =>
  given === undefined ? given : (JSON.parse(JSON.stringify(given)) as Value);

describe('drafts have the same result as the plain rules', () => {
  test('for a series of changes, some of them undone, without changing the stored value', () => {
    fc.assert(
      fc.property(
        stored,
        fc.array(fc.record({ change, taken: fc.boolean() }), { minLength: 1, maxLength: 12 }),
        (current, changes) => {
          const before = JSON.stringify(current);
          const draft = new DraftAttribute(current);
          let expected = copy(current);
          for (const { change, taken } of changes) {
            const journal = new Journal();
            expect(draft.apply(change, journal)).toBe('done');
            if (taken) journal.undo();
            else expected = copy(changedPlainly(copy(expected), copy(change)));
            expect(draft.value).toEqual(expected);
            const text = expected === undefined ? '' : JSON.stringify(expected);
            const stored = expected === undefined ? 0 : storedBytes(expected);
            expect(draft.size).toEqual({ json: Buffer.byteLength(text), stored });
          }
          expect(JSON.stringify(current)).toBe(before);
        },
      ),
      { numRuns: lengthOf({ short: 500, long: 1500 }) },
    );
  });

  test('for long lists, which are compacted', () => {
    fc.assert(
      fc.property(fc.array(fc.record({ add: scalars, remove: scalars }), { maxLength: 60 }), (lists) => {
        let expected: Json | undefined = Array.from({ length: 300 }, (_, index) => index % 200);
        const draft = new DraftAttribute(expected);
        for (const array of lists) {
          array.add.push(...Array.from({ length: 9 }, (_, index) => 40 + index * 3));
          draft.apply({ array }, new Journal());
          expected = changedPlainly(expected, { array });
          expect(draft.value).toEqual(expected);
        }
      }),
    );
  });

  test('G5: undone additions free their memory', () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const draft = new DraftAttribute(Array.from({ length: 7000 }, (_, id) => ({ id })));
    const heap = () => {
      collect();
      return process.memoryUsage().heapUsed / 1024 ** 2;
    };
    const tooMuch = (object: number): AttributeChange => {
      const add = Array.from({ length: 4000 }, (_, index) => ({ a: 1_000_000 + object * 4000 + index }));
      return { objects: { add, remove: [{ key: 'b', value: 1 }], merge: false } };
    };
    const { json } = draft.size;
    draft.apply(tooMuch(0), new Journal());
    const before = heap();
    for (let object = 1; object <= 60; object++) draft.apply(tooMuch(object), new Journal());
    expect(heap() - before).toBeLessThan(8);
    expect(draft.size.json).toBe(json);
  });
});
