import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  integerArray,
  jsonArray,
  laterArray,
  numerics,
  textArray,
  timeArray,
  uuidArray,
} from '../../src/store/arrays.ts';
import { elementsOf, uuidColumn } from '../../src/store/columns.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabase } from '../setup/fixtures.ts';

let database: Database;
beforeAll(async () => {
  database = openDatabase((await createDatabase()).url, 1);
});
afterAll(() => database.stop());

/** Returns the array that Postgres reads from the parameter, as JSON. */
async function asRead(type: string, parameter: Buffer | string): Promise<unknown> {
  const { rows } = await database.pool.query(`select to_jsonb($1::${type}[]) as value`, [parameter]);
  return rows[0].value;
}

// Web rejects texts that Postgres cannot store: texts with NUL or lone surrogates.
const text = fc
  .oneof(fc.string({ unit: 'grapheme' }), fc.string({ minLength: 20, maxLength: 5000 }))
  .filter((value) => !value.includes('\0'));

test('any JSON reaches Postgres unchanged and in order, and undefined as NULL', async () => {
  // Numbers are compared as JSON writes them.
  const number = fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e15, max: 1e15 });
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof({ maxDepth: 3 }, text, number, fc.boolean(), tie('array'), tie('object')),
    array: fc.array(tie('value'), { maxLength: 4 }),
    object: fc.dictionary(text, tie('value'), { maxKeys: 4 }),
  }));
  const element = fc.option(fc.dictionary(text, value, { maxKeys: 4 }), { nil: undefined });
  await fc.assert(
    fc.asyncProperty(fc.array(element, { maxLength: 5 }), async (elements) => {
      const parameter = jsonArray(elements, (one) => one);
      expect(await asRead('jsonb', parameter)).toEqual(
        JSON.parse(JSON.stringify(elements.map((one) => one ?? null))),
      );
    }),
    { numRuns: 300 },
  );
});

test('texts that look like array syntax, for example NULL or {, stay texts', async () => {
  const elements = [
    { a: '"' },
    { a: '\\' },
    { a: '{,}' },
    { a: 'NULL' },
    { a: ' ' },
    { a: '\n' },
    { '"\\': '' },
  ];
  const parameter = jsonArray(elements, (one) => one);
  expect(await asRead('jsonb', parameter)).toEqual(elements);
  const texts = elements.map((element) => JSON.stringify(element));
  const textParameter = textArray(texts, (one) => one);
  expect(await asRead('text', textParameter)).toEqual(texts);
});

test('any text reaches Postgres unchanged and in order; undefined and null as NULL', async () => {
  const element = fc.option(text, { nil: undefined });
  await fc.assert(
    fc.asyncProperty(fc.array(element, { maxLength: 60 }), async (elements) => {
      const read = await asRead(
        'text',
        textArray(elements, (one) => one),
      );
      expect(read).toEqual(elements.map((one) => one ?? null));
    }),
    { numRuns: 300 },
  );
  const parameter = textArray([null, 'last'], (one) => one);
  expect(await asRead('text', parameter)).toEqual([null, 'last']);
});

test('any UUID reaches Postgres unchanged and in order, also a repeated one', async () => {
  const few = fc.constantFrom('0199a0f0-0000-7000-8000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  await fc.assert(
    fc.asyncProperty(fc.array(fc.oneof(fc.uuid(), few), { maxLength: 60 }), async (ids) => {
      expect(await asRead('uuid', uuidArray(ids, String))).toEqual(ids);
    }),
    { numRuns: 100 },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uuid(), { minLength: 1, maxLength: 40 }), fc.nat(), async (ids, chosen) => {
      const position = chosen % ids.length;
      const [array, column] = [uuidArray(ids, String), uuidColumn(1)];
      column.addUuid(ids[0]!);
      column.addElement(elementsOf(array), position);
      column.addUuid(ids[0]!);
      column.addAll({ toParameter: () => array });
      column.addUuid(ids.at(-1)!);
      const taken = [ids[0], ids[position], ids[0], ...ids, ids.at(-1)];
      expect(await asRead('uuid', column.toParameter())).toEqual(taken);
    }),
    { numRuns: 20 },
  );
  const upper = uuidArray(['0199A0F0-0000-7000-8000-00000000ABCD'], String);
  expect(await asRead('uuid', upper)).toEqual(['0199a0f0-0000-7000-8000-00000000abcd']);
});

test('any time of four digits of years reaches Postgres to the millisecond', async () => {
  const time = fc
    .date({
      min: new Date('0001-01-01T00:00:00Z'),
      max: new Date('9999-12-31T23:59:59.999Z'),
      noInvalidDate: true,
    })
    .map((date) => date.toISOString());
  const edges = ['0001-01-01T00:00:00.000Z', '1999-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'];
  await fc.assert(
    fc.asyncProperty(fc.array(time, { maxLength: 60 }), async (some) => {
      const times = [...edges, ...some];
      const read = (await asRead('timestamptz', timeArray(times, String))) as string[];
      expect(read.map((one) => new Date(one).toISOString())).toEqual(times);
    }),
    { numRuns: 100 },
  );
});

test('numbers reach Postgres unchanged', async () => {
  const integers = [0, -1, 2 ** 31 - 1, -(2 ** 31)];
  expect(await asRead('integer', integerArray(integers, Number))).toEqual(integers);
  const numbers = [0, -1.5, 1e21, 1e-7, Number.MAX_SAFE_INTEGER, 123456789.123];
  expect(await asRead('numeric', numerics(numbers))).toEqual(numbers);
});

test('an empty list is an empty array', async () => {
  expect(await asRead('jsonb', jsonArray([], Object))).toEqual([]);
  expect(await asRead('text', textArray([], String))).toEqual([]);
  expect(await asRead('uuid', uuidArray([], String))).toEqual([]);
  expect(await asRead('numeric', numerics([]))).toEqual([]);
});

describe('rejects a value of the wrong type with an error that names the value, as Postgres does', () => {
  test.each([
    '',
    '0199a0f0-0000-7000-8000-00000000000',
    '0199a0f0-0000-7000-8000-00000000000g',
    `${'0'.repeat(36)}`,
    '0199a0f0-0000-7000-8000-0000000000é0',
  ])('UUID %j', (uuid) => expect(() => uuidArray([uuid], String)).toThrow(RangeError));
  test('time', () => expect(() => timeArray(['soon'], String)).toThrow(RangeError));
  test('integer', () => expect(() => integerArray([2 ** 31], Number)).toThrow(RangeError));
});

test('times after a start time are exact to the microsecond', async () => {
  const start = '2026-01-02T03:04:05.678901Z';
  const { rows } = await database.pool.query(
    `select array(
      select to_char(one at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.US') from unnest($1::timestamptz[]) as one) as told`,
    [laterArray(start, [0, 1, 99, 321_099], (one) => one)],
  );
  expect(rows[0].told).toEqual([
    '2026-01-02 03:04:05.678901',
    '2026-01-02 03:04:05.678902',
    '2026-01-02 03:04:05.679000',
    '2026-01-02 03:04:06.000000',
  ]);
  expect(() => laterArray('yesterday', [1], (one) => one)).toThrow(RangeError);
});
