import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import type { PostgresDefinition } from '../../src/integrations/source.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { open, postgres, readAll, runOnPostgres, type Stocked } from './warehouses.ts';

async function at(table: string, changes: Partial<PostgresDefinition> = {}): Promise<Stocked> {
  const { definition, credentials } = await postgres();
  return { definition: { ...definition, table, ...changes }, credentials };
}

test.each([
  ["timestamp '2026-01-02 03:04:05.123456'", '2026-01-02T03:04:05.123456Z'],
  ["timestamptz '2026-01-02 03:04:05.123456+02'", '2026-01-02T01:04:05.123456Z'],
  ["date '2026-01-02'", '2026-01-02T00:00:00.000000Z'],
  ["'2026-01-02T03:04:05.123456+02:00'::varchar(40)", '2026-01-02T01:04:05.123456Z'],
  ["'2026-01-02'::text", '2026-01-02T00:00:00.000000Z'],
])('%s is read as %s, whatever the time zone of the database', async (value, read) => {
  await runOnPostgres('drop view if exists times');
  await runOnPostgres(`create view times as select 1 as external_id, ${value} as updated_at`);
  await runOnPostgres(
    "do $$ begin execute format('alter database %I set timezone to ''Asia/Tokyo''', current_database()); end $$",
  );
  expect(await readAll(await at('times'))).toEqual([{ updatedAt: read, identifiers: { external_id: '1' } }]);
  expect(await readAll(await at('times'), read)).toHaveLength(1);
  expect(await readAll(await at('times'), read.replace(/\d{6}Z$/, '999999Z'))).toEqual([]);
});

test('a text of any other form is not a time, and fails no statement', async () => {
  const texts = [
    '2026-02-29',
    '0000-01-01',
    'now',
    '1767225600',
    'infinity',
    '2026-01-01 24:00',
    '10000-01-01',
    "'",
  ];
  await runOnPostgres('create table texts (updated_at text, external_id int)');
  await runOnPostgres('insert into texts select text, 1 from unnest($1::text[]) text', [texts]);
  const rows = await readAll(await at('texts'));
  expect(rows.map(({ unreadable }) => unreadable).sort()).toEqual(texts.sort());
});

test('times without a four-digit year are not times', async () => {
  await runOnPostgres(`create table eras as select updated_at::timestamptz, 1 as external_id
    from unnest(array['infinity', '-infinity', '0001-12-31 23:59:59Z BC', '10000-01-01Z', '9999-12-31 23:59:59.999999Z']) updated_at`);
  const rows = await readAll(await at('eras'));
  expect(rows.filter(({ updatedAt }) => updatedAt).map(({ updatedAt }) => updatedAt)).toEqual([
    '9999-12-31T23:59:59.999999Z',
  ]);
  expect(rows.filter(({ unreadable }) => unreadable)).toHaveLength(4);
});

test.each([
  ['json', '{"a": 1.10, "a": 2}', '{"a": 1.10, "a": 2}'],
  ['jsonb', '{"b":12345678901234567890.10}', '{"b": 12345678901234567890.10}'],
  ['text', 'no json', 'no json'],
])('a payload of type %s is read as its text', async (type, written, read) => {
  const table = `payload_${type}`;
  await runOnPostgres(
    `create table ${table} (external_id bigint, updated_at timestamptz default now(), payload ${type})`,
  );
  await runOnPostgres(`insert into ${table} values (9007199254740993, default, $1)`, [written]);
  expect(await readAll(await at(table))).toMatchObject([
    { identifiers: { external_id: '9007199254740993' }, payload: read },
  ]);
});

test('a table is named as in SQL: with its schema, case-sensitive in quotes, else in lower case', async () => {
  await runOnPostgres('create schema "Ex.ports"');
  await runOnPostgres(`create table "Ex.ports"."Us""ers" as select 'quoted' as email, now() as updated_at`);
  await runOnPostgres('create schema exports');
  await runOnPostgres(`create table exports.users as select 'plain' as email, now() as updated_at`);
  expect(await readAll(await at('"Ex.ports"."Us""ers"'))).toMatchObject([
    { identifiers: { email: 'quoted' } },
  ]);
  expect(await readAll(await at('EXPORTS.Users'))).toMatchObject([{ identifiers: { email: 'plain' } }]);
});

test.each([
  'users; drop table precious; --',
  "users' or '1'='1",
  '(select 1) x',
  'users"; drop table precious; --',
  'public."precious',
  'a..b',
  '',
])('the table name %s is only an unknown table', async (table) => {
  await runOnPostgres('create table if not exists precious (a int)');
  await expect(at(table).then(readAll)).rejects.toMatchObject({ name: 'SourceError', reason: 'config' });
  await runOnPostgres('select a from precious');
});

test('a column may have any name', async () => {
  await runOnPostgres(
    `create table odd as select now() as updated_at, 'a' as email, 1 as "x""; drop table odd; --"`,
  );
  expect(await readAll(await at('odd'))).toHaveLength(1);
});

test('a mistake of the owner is an error with cause and place, without secrets', async () => {
  await runOnPostgres(`create table guarded as select 1 as external_id, now() as updated_at`);
  await runOnPostgres("create role stranger login password 'right'");
  await runOnPostgres(
    'create view broken as select 1 / (external_id - 1) as external_id, updated_at from guarded',
  );
  await runOnPostgres('create view numbers as select 1 as external_id, 2 as updated_at');
  const { definition, credentials } = await postgres();
  const guarded: Stocked = await at('guarded');
  const cases: [Stocked, RegExp][] = [
    [{ ...guarded, credentials: { ...credentials, password: 'hunter2' } }, /password authentication failed/],
    [
      { ...guarded, credentials: { user: 'stranger', password: 'right' } },
      /permission denied for table guarded/,
    ],
    [await at('missing'), /relation "missing" does not exist/],
    [await at('nowhere.users'), /relation "nowhere.users" does not exist/],
    [await at('guarded', { database: 'nothing_here' }), /database "nothing_here" does not exist/],
    [await at('guarded', { host: 'no-such-host.invalid' }), /no-such-host.invalid/],
    [await at('guarded', { port: 1 }), /ECONNREFUSED/],
    [await at('guarded', { tls: 'on' }), /does not support SSL/],
    [await at('broken'), /division by zero/],
    [await at('numbers'), /updated_at is of type integer, which is not a time type/],
  ];
  for (const [stocked, message] of cases) {
    const error = await readAll(stocked).then(
      () => undefined,
      (reason: Error) => reason,
    );
    expect(error).toMatchObject({
      name: 'SourceError',
      reason: 'config',
      message: expect.stringMatching(message),
    });
    expect(error!.message).not.toMatch(/hunter2/);
    expect(error!.message).not.toContain(credentials.password);
  }
  expect(definition.tls).toBe('off');
});

test('a connection that breaks during the reading is not an error of the configuration', async () => {
  await runOnPostgres(
    `create table large as select n as external_id, now() as updated_at from generate_series(1, 5000) n`,
  );
  const source = await open(await at('large'));
  const reading = async () => {
    for await (const rows of source.rowsSince(undefined, {
      batch: 10,
      signal: new AbortController().signal,
    })) {
      expect(rows).toHaveLength(10);
      await runOnPostgres(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock' and datname = current_database()",
      );
    }
  };
  await expect(reading()).rejects.toMatchObject({ name: 'SourceError', reason: 'failed' });
  await source.close();
});

test('a server that never answers fails after the timeout', async () => {
  const silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { port } = silent.address() as AddressInfo;
  await expect(at('users', { host: '127.0.0.1', port }).then(open)).rejects.toMatchObject({
    name: 'SourceError',
    reason: 'failed',
    message: expect.stringMatching(/timeout/),
  });
  silent.close();
});

test('a signal ends the statement at the server', async () => {
  await runOnPostgres(
    'create view slow as select 1 as external_id, now() as updated_at from pg_sleep(600) where pg_sleep(600) is null',
  );
  const source = await open(await at('slow'));
  const stop = new AbortController();
  const reason = new Error('cancelled');
  const rows = source.rowsSince(undefined, { batch: 10, signal: stop.signal })[Symbol.asyncIterator]();
  const end = expect(rows.next()).rejects.toBe(reason);
  const sleeping = () =>
    runOnPostgres(
      "select 1 from pg_stat_activity where application_name = 'penstock' and query like 'fetch%' and state = 'active'",
    );
  await waitUntil(async () => (await sleeping()).rowCount === 1, { what: 'the statement' });
  stop.abort(reason);
  await end;
  await source.close();
  await waitUntil(async () => (await sleeping()).rowCount === 0, { what: 'the end of the statement' });
});

test('the transaction is read-only', async () => {
  await runOnPostgres('create table written (a int)');
  await runOnPostgres(
    `create function write() returns int language plpgsql as $$ begin insert into written values (1); return 1; end $$`,
  );
  await runOnPostgres('create view writing as select write() as external_id, now() as updated_at');
  await expect(at('writing').then(readAll)).rejects.toThrow(/read-only transaction/);
  expect((await runOnPostgres('select * from written')).rowCount).toBe(0);
});
