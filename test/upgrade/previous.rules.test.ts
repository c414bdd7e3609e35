import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot, packageVersion } from '../../src/platform/files.ts';
import { READS, WRITES } from '../../src/queue/wire.ts';
import { judgeMigration, previous } from './migration-rules.ts';

const folder = path.join(packageRoot, 'prisma/migrations');
const migrations = readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  .sort();
const readMigration = (name: string) => readFileSync(path.join(folder, name, 'migration.sql'), 'utf8');

const releases = { version: packageVersion, previous: previous.version };

test('names the previous release, and the migration from which on all are checked', () => {
  expect(previous.commit).toMatch(/^[0-9a-f]{40}$/);
  expect(migrations).toContain(previous.migration);
  expect(migrations).toContain(previous.checkedAfter);
});

test('web writes the wire format that workers of the previous release read', () => {
  expect(WRITES).toBeLessThanOrEqual(previous.reads);
  expect(WRITES).toBeLessThanOrEqual(READS);
  expect(READS, 'what no worker has read yet is one version at most').toBeLessThanOrEqual(WRITES + 1);
});

test('migrations keep everything that processes of the previous release use', async () => {
  for (const name of migrations.filter((one) => one > previous.checkedAfter))
    expect({ name, faults: await judgeMigration(readMigration(name), releases) }).toEqual({
      name,
      faults: [],
    });
});

describe('the check of migrations', () => {
  const checkMigration = (sql: string) => judgeMigration(sql, { version: '1.2.0', previous: '1.1.0' });

  test.each([
    ['drop table usage', 'drops'],
    ['drop view kept_dead_letters', 'drops'],
    ['drop index events_of_profile', 'drops'],
    ['drop function take_tokens(text)', 'drops'],
    ['alter table usage drop column count', 'drops a column'],
    ['alter table usage drop constraint usage_pkey', 'drops a constraint'],
    ['alter table usage rename column count to counted', 'renames'],
    ['alter table usage rename to used', 'renames'],
    ['alter table usage alter count type bigint', 'alters type or collation'],
    ['alter table profiles alter external_id type text collate "C"', 'alters type or collation'],
    ['alter table usage alter count set not null', 'sets a column not null'],
    ['alter table usage alter count drop default', 'drops a default'],
    ['alter table usage add column seen timestamptz not null', 'leaves empty'],
    ['alter table usage add column seen text unique', 'new rule'],
    ['alter table usage add constraint positive check (count > 0)', 'new rule'],
    ['alter table usage add unique (day)', 'new rule'],
    ['create unique index usage_day on usage (day)', 'new rule'],
    ['alter table profiles add column token uuid default gen_random_uuid()', 'writes a large table anew'],
    ['create index events_name on events (name)', 'stops all who write'],
    ['create index if not exists events_name on events (name)', 'stops all who write'],
    ['create index concurrently events_name on events (name)', 'cannot run'],
    ["update profiles set language = 'en'", 'large table'],
    ['delete from usage', 'deletes rows'],
    ['truncate usage', 'deletes rows'],
    ['do $$ begin execute 1; end $$', 'cannot be judged'],
    [
      'do $$ begin\ndrop table usage;\nexception when feature_not_supported then null;\nend $$',
      'drops: drop table usage',
    ],
    ['lock table events', 'LockStmt'],
    ['alter table usage set unlogged', 'AT_SetUnLogged'],
    ['create table n (w uuid references workspaces (id))', 'keeps the release before from deleting'],
  ])('rejects: %s', async (statement, fault) => {
    const faults = await checkMigration(`-- Why it is done.\n${statement};`);
    expect(faults).toHaveLength(1);
    expect(faults[0]).toContain(fault);
    expect(faults[0]).toContain(/drop table usage/.exec(statement)?.[0] ?? statement);
  });

  test.each([
    'create table notes (id uuid primary key, text text not null); create unique index on notes (text)',
    'create table notes (w uuid references workspaces (id) on delete cascade)',
    'alter table usage add column seen timestamptz',
    "alter table profiles add column seen timestamptz not null default now(), add column tags text[] default '{}'",
    'alter table usage alter count drop not null, alter count set default 0',
    'create index usage_day on usage (day)',
    'create or replace view v as select 1',
    'do $$ begin\nalter table t alter c set compression lz4;\nexception when feature_not_supported then null;\nend $$',
    '-- beforehand: create index concurrently profiles_seen on profiles (seen)\ncreate index if not exists profiles_seen on profiles (seen)',
  ])('accepts: %s', async (sql) => {
    expect(await checkMigration(sql)).toEqual([]);
  });

  test('a contract step needs its release, and a previous release that no longer uses the thing', async () => {
    const step = (allowed: string, unused: string) =>
      checkMigration(
        `-- Over.\n-- contract ${allowed}: the column nick, unused since ${unused}\nalter table profiles drop column nick;`,
      );
    expect(await step('1.2.0', '1.1.0')).toEqual([]);
    expect(await step('1.10.0', '1.1.0')).toEqual([
      expect.stringMatching(/^is a step of 1\.10\.0, and this is 1\.2\.0/),
    ]);
    expect(await step('1.2.0', '1.2.0')).toEqual([
      expect.stringMatching(/^was used before 1\.2\.0, and 1\.1\.0 runs/),
    ]);
  });

  test('a contract step covers only the next statement', async () => {
    const sql = '-- contract 1.2.0: the index a, unused since 1.1.0\ndrop index a;\ndrop index b;';
    expect(await checkMigration(sql)).toEqual(['drops: drop index b']);
  });

  test('the check would have rejected some of the migrations from before it existed', async () => {
    expect(await checkMigration(readMigration('0025_users_by_prefix'))).toEqual([
      expect.stringContaining('stops all who write'),
      ...['events', 'purchases'].flatMap((table) => [
        expect.stringContaining(`drops a constraint: alter table ${table}`),
        expect.stringContaining('is a new rule about rows that the release before writes'),
      ]),
      ...Array.from({ length: 2 }, () => expect.stringMatching(/^drops: drop index/)),
    ]);
  });
});
