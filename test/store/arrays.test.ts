import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { jsonArray, plainArray } from '../../src/store/arrays.ts';
import { type Database, openDatabase } from '../../src/store/database.ts';
import { createDatabase } from '../setup/fixtures.ts';

let database: Database;
beforeAll(async () => {
  database = openDatabase((await createDatabase()).url, 1);
});
afterAll(() => database.stop());

/** What Postgres reads in the literal. */
async function asRead(type: string, literal: string): Promise<unknown> {
  const { rows } = await database.pool.query(`select to_jsonb($1::${type}[]) as value`, [literal]);
  return rows[0].value;
}

test('any JSON reaches Postgres as it is, in its place, and undefined as NULL', async () => {
  // What jsonb cannot hold is refused at the edge: NUL and lone surrogates. Numbers are compared as JSON writes them.
  const text = fc.string({ unit: 'grapheme' }).filter((value) => !value.includes('\0'));
  const number = fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e15, max: 1e15 });
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof({ maxDepth: 3 }, text, number, fc.boolean(), tie('array'), tie('object')),
    array: fc.array(tie('value'), { maxLength: 4 }),
    object: fc.dictionary(text, tie('value'), { maxKeys: 4 }),
  }));
  const element = fc.option(fc.dictionary(text, value, { maxKeys: 4 }), { nil: undefined });
  await fc.assert(
    fc.asyncProperty(fc.array(element, { maxLength: 5 }), async (elements) => {
      const read = await asRead(
        'jsonb',
        jsonArray(elements, (one) => one),
      );
      expect(read).toEqual(JSON.parse(JSON.stringify(elements.map((one) => one ?? null))));
    }),
    { numRuns: 300 },
  );
});

test('what could be taken for a part of an array stays a text', async () => {
  const elements = [
    { a: '"' },
    { a: '\\' },
    { a: '{,}' },
    { a: 'NULL' },
    { a: ' ' },
    { a: '\n' },
    { '"\\': '' },
  ];
  const read = await asRead(
    'jsonb',
    jsonArray(elements, (one) => one),
  );
  expect(read).toEqual(elements);
});

test('numbers of every size, UUIDs and times need no quotes', async () => {
  const numbers = [0, -1.5, 1e21, 1e-7, Number.MAX_SAFE_INTEGER, 123456789.123];
  expect(await asRead('numeric', plainArray(numbers, Number))).toEqual(numbers);
  const ids = ['0199a0f0-0000-7000-8000-000000000000'];
  expect(await asRead('uuid', plainArray(ids, String))).toEqual(ids);
  const times = ['2026-01-31T12:00:00.123Z', '0001-01-01T00:00:00.000Z'];
  const read = (await asRead('timestamptz', plainArray(times, String))) as string[];
  expect(read.map((time) => new Date(time).toISOString())).toEqual(times);
});

test('no rows are an empty array', async () => {
  expect(
    await asRead(
      'jsonb',
      jsonArray([], () => undefined),
    ),
  ).toEqual([]);
  expect(await asRead('uuid', plainArray([], String))).toEqual([]);
});
