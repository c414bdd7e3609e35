import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { messageOf } from '../src/platform/log.ts';
import { createDatabase } from './setup/fixtures.ts';

let client: pg.Client;
beforeAll(async () => {
  client = new pg.Client({ connectionString: (await createDatabase()).url });
  await client.connect();
});
afterAll(() => client.end());

/** Returns the error with which Postgres rejects a statement. */
const refusalOf = (statement: string, values: unknown[] = []): Promise<Error> =>
  client.query(statement, values).then(
    () => expect.unreachable(`${statement} was not refused`),
    (error: Error) => error,
  );

test.each([
  ['select $1::text::integer', 'ada@example.com'],
  ['select $1::text::uuid', 'a "quoted" name'],
  ['select $1::text::timestamptz', 'two\nlines'],
  ['select $1::text::boolean', "it's"],
  ['select $1::text::jsonb', '{"phone": +15550100}'],
])('values in errors of Postgres are kept out of the log: %s', async (statement, value) => {
  const error = await refusalOf(statement, [value]);
  for (const word of value.split(/[^a-z0-9@.+]+/i).filter((word) => word.length > 3)) {
    expect(messageOf(error)).not.toContain(word);
  }
  expect(messageOf(error)).toMatch(/^invalid input syntax for type \w+/);
});

test('names of tables and constraints are logged', async () => {
  expect(messageOf(await refusalOf('select from nowhere'))).toBe('relation "nowhere" does not exist');
  const insert = "insert into workspaces (id, name) values ('019c13ec-a2e2-7b61-8f0c-55a3d7000000', 'a')";
  await client.query(insert);
  expect(messageOf(await refusalOf(insert))).toBe(
    'duplicate key value violates unique constraint "workspaces_pkey"',
  );
});

test('the message of any other error is logged unchanged', () => {
  expect(messageOf(new TypeError('"a" is no b'))).toBe('"a" is no b');
  expect(messageOf('text')).toBe('text');
});
