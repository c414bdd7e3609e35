import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { expect, test } from 'vitest';
import { Prisma } from '../../src/generated/prisma/client.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createBareDatabase, createDatabase, createDatabaseOfOne } from '../setup/fixtures.ts';

const folder = path.join(packageRoot, 'prisma/migrations');
const migrations = readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  .sort();

test('a first run applies all migrations in order and records them like `prisma migrate deploy`', async () => {
  const { url } = await createBareDatabase();
  expect(await migrate(url)).toEqual(migrations);

  const records = await query(url, 'select * from _prisma_migrations order by migration_name');
  expect(records.map((record) => record.migration_name)).toEqual(migrations);
  for (const record of records) {
    const text = readFileSync(path.join(folder, record.migration_name, 'migration.sql'));
    expect(record.checksum).toBe(createHash('sha256').update(text).digest('hex'));
    expect(record).toMatchObject({
      finished_at: expect.any(Date),
      rolled_back_at: null,
      logs: null,
      applied_steps_count: 1,
    });
  }
});

test('a second run leaves the database unchanged', async () => {
  const { url } = await createDatabase();
  const before = await query(url, 'select * from _prisma_migrations order by migration_name');
  expect(await migrate(url)).toEqual([]);
  expect(await query(url, 'select * from _prisma_migrations order by migration_name')).toEqual(before);
});

test('one of two concurrent migrations applies the changes, and the other waits', async () => {
  const { url } = await createBareDatabase();
  const runs = await Promise.all([migrate(url), migrate(url)]);
  expect(runs.sort((a, b) => b.length - a.length)).toEqual([migrations, []]);
  expect(await query(url, 'select from _prisma_migrations')).toHaveLength(migrations.length);
});

test('with the queue on Redis, the queue has no tables in Postgres', async () => {
  const { url } = await createBareDatabase();
  await migrate(url, 'redis');
  expect(await query(url, "select from pg_namespace where nspname = 'bullmq'")).toEqual([]);
  await migrate(url, 'postgres');
  expect(await query(url, "select from pg_namespace where nspname = 'bullmq'")).toHaveLength(1);
});

test('a failed migration is named, leaves the database unchanged and can be run again', async () => {
  const { url } = await createBareDatabase();
  await query(
    url,
    'create function uuid_v7_floor(instant timestamptz) returns uuid language sql return null::uuid',
  );
  await expect(migrate(url)).rejects.toThrow(
    'migration 0003_activity failed: function "uuid_v7_floor" already exists with same argument types',
  );
  expect(await query(url, "select from pg_tables where schemaname = 'public'")).toEqual([]);

  await query(url, 'drop function uuid_v7_floor');
  expect(await migrate(url)).toEqual(migrations);
});

test('a migration that waits for a locked table lets others use it, and logs who holds it', async () => {
  const { url } = await createDatabaseOfOne();
  const column = 'alter table sync_row_errors drop column synced cascade';
  const name = '0018_synced_rows_with_warnings';
  await query(url, `${column}; delete from _prisma_migrations where migration_name = '${name}'`);
  const holder = new pg.Client({ connectionString: url, application_name: 'a-backup' });
  await holder.connect();
  try {
    await holder.query('begin; lock table sync_row_errors in access share mode; select pg_sleep(1.1)');

    const short = { wait: 100, pause: 20, maxTotal: 150 };
    await expect(migrate(url, 'postgres', short)).rejects.toThrow(
      new RegExp(
        `migration ${name} failed: .*lock timeout; in the way may be process \\d+ \\(a-backup, \\d+ s`,
      ),
    );

    let releaseIt!: (reason: string) => void;
    const logged = new Promise<string>((resolve) => {
      releaseIt = resolve;
    });
    const run = migrate(url, 'postgres', { wait: 100, pause: 20, maxTotal: 20_000, onRetry: releaseIt });
    expect(await logged).toContain('a-backup');
    // Statements of other sessions run while the migration waits.
    expect(await query(url, 'select from sync_row_errors')).toEqual([]);
    await holder.query('commit');
    expect(await run).toEqual([name]);
  } finally {
    await holder.end();
  }
});

test('a migration that Postgres cancels to resolve a deadlock is retried', async () => {
  const { url } = await createDatabaseOfOne();
  const name = '0018_synced_rows_with_warnings';
  const undo = `alter table sync_row_errors drop column synced cascade; delete from _prisma_migrations where migration_name = '${name}'`;
  await query(url, undo);
  // The first attempt is the victim of another session's deadlock; the second one runs alone.
  await query(
    url,
    `create sequence public.tries;
     create function stand_in_the_way() returns event_trigger language plpgsql as $$
     begin
       if nextval('public.tries') = 1 then raise exception 'deadlock detected' using errcode = '40P01'; end if;
     end $$;
     create event trigger stand_in_the_way on ddl_command_start execute function stand_in_the_way()`,
  );
  const logged: string[] = [];
  const patience = {
    wait: 100,
    pause: 20,
    maxTotal: 20_000,
    onRetry: (reason: string) => logged.push(reason),
  };
  expect(await migrate(url, 'postgres', patience)).toEqual([name]);
  expect(logged).toEqual([expect.stringContaining('deadlock detected')]);
});

test('a job that changes from active back to waiting keeps its position', async () => {
  const { url } = await createDatabase();
  const state = async (id: string) =>
    (await query(url, `select state, seq from bullmq.job where id = '${id}'`))[0];
  await query(
    url,
    `insert into bullmq.job (queue, id, seq, name, state, added_at_ms)
     values ('lane-0', 'first', 1, 'track', 'active', 0), ('lane-0', 'second', 2, 'track', 'waiting', 0)`,
  );
  await query(url, "update bullmq.job set state = 'waiting', seq = 9 where id = 'first'");
  expect(await state('first')).toEqual({ state: 'waiting', seq: 1 });
  // A retry from the failed set goes to the end of the queue on purpose.
  await query(url, "update bullmq.job set state = 'failed' where id = 'second'");
  await query(url, "update bullmq.job set state = 'waiting', seq = 10 where id = 'second'");
  expect(await state('second')).toEqual({ state: 'waiting', seq: 10 });
});

test('the Prisma client reads every model that it has', async () => {
  const { url } = await createDatabaseOfOne();
  const database = openDatabase(url, 2);
  try {
    const models = database.prisma as unknown as Record<
      string,
      { findFirst(): Promise<{ name: string } | null> }
    >;
    const names = Object.values(Prisma.ModelName).map((name) => name[0]!.toLowerCase() + name.slice(1));
    expect(names).toContain('segment');
    // The migrations create one company.
    for (const name of names)
      expect((await models[name]!.findFirst())?.name, name).toBe(name === 'company' ? 'default' : undefined);
  } finally {
    await database.stop();
  }
});

async function query(url: string, statement: string) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(statement).finally(() => client.end());
  return rows;
}
