import fc from 'fast-check';
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Json, storedBytes } from '../../src/profile/json.ts';
import { createStore } from '../workers/batch.ts';

let pool: pg.Pool;
beforeAll(async () => {
  ({ pool } = await createStore());
});
afterAll(() => pool.end());

/** Header bytes of a value that is the whole column, in addition to its entry among other values. */
const HEAD = 4;

const text = fc
  .string({ unit: 'grapheme', maxLength: 300 })
  .filter((one) => one.isWellFormed() && !one.includes('\0'));
const value: fc.Arbitrary<Json> = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'medium' },
    text,
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 8 }) as fc.Arbitrary<Json>,
    fc.dictionary(text, tie('value'), { maxKeys: 8 }) as fc.Arbitrary<Json>,
  ),
})).value;

/** Numbers and containers are aligned to four bytes; a number may have four digits more than were counted. */
function slack(of: Json): number {
  if (typeof of === 'number') return 8;
  if (typeof of !== 'object' || of === null) return 0;
  return Object.values(of).reduce<number>((sum, one) => sum + slack(one), 4);
}

test('storedBytes equals the size that Postgres decompresses, except for the alignment', async () => {
  await fc.assert(
    fc.asyncProperty(fc.dictionary(text, value, { maxKeys: 12 }), async (attributes) => {
      const { rows } = await pool.query('select pg_column_size($1::jsonb) as bytes', [
        JSON.stringify(attributes),
      ]);
      const difference = rows[0].bytes - (storedBytes(attributes as Json) - 4 + HEAD);
      expect(Math.abs(difference)).toBeLessThanOrEqual(slack(attributes as Json));
    }),
    { numRuns: 400 },
  );
});
