import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { beforeAll, describe, expect, test } from 'vitest';
import { decryptCredentials, keysOf } from '../../src/integrations/credentials.ts';
import { createBareDatabase, createDatabase, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const OTHER_KEY = Buffer.alloc(32, 8).toString('hex');
const GOOD = 'external_id,updated_at,payload\n';

let url: string;
let pool: pg.Pool;
/** Without a key, with one, and with another one. */
let on: PenstockOn;
let withKey: PenstockOn;
let withOtherKey: PenstockOn;
let warehouse: URL;
beforeAll(async () => {
  ({ url } = await createDatabase());
  pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  await makeWorkspaces(url, 'shop', 'school');
  warehouse = new URL((await createBareDatabase()).url);
  const secret = {
    WAREHOUSE_PASSWORD: decodeURIComponent(warehouse.password) || 'trusted',
    WRONG: 'hunter2',
  };
  on = penstockOn(url, secret);
  withKey = penstockOn(url, { ...secret, INTEGRATION_KEY: KEY });
  withOtherKey = penstockOn(url, { ...secret, INTEGRATION_KEY: OTHER_KEY });
  const client = new pg.Client({ connectionString: warehouse.href });
  await client.connect();
  await client.query(`
    create table users (updated_at timestamptz, external_id text, payload jsonb);
    create table events (updated_at timestamptz, external_id text, payload jsonb);
    create table lost (external_id text, payload jsonb)`);
  await client.end();
  return () => pool.end();
});

/** A folder with one CSV file; its path. */
function folder(text = GOOD): string {
  const place = temporaryFolder();
  writeFileSync(path.join(place, 'rows.csv'), text);
  return place;
}

const create = (name: string, ...more: string[]) => [
  'integrations',
  'create',
  '--workspace',
  'shop',
  '--name',
  name,
  ...more,
];
const fromFolder = (name: string, place = folder(), ...more: string[]) =>
  create(name, '--kind', 'attributes', '--source', 'folder', '--path', place, '--format', 'csv', ...more);
const fromPostgres = (name: string, table: string, ...more: string[]) =>
  create(
    name,
    ...[
      '--kind',
      'attributes',
      '--source',
      'postgres',
      '--host',
      warehouse.hostname,
      '--port',
      warehouse.port,
    ],
    ...['--database', warehouse.pathname.slice(1), '--table', table, '--tls', 'off'],
    ...['--user', decodeURIComponent(warehouse.username), ...more],
  );
const env = ['--secret-env', 'WAREHOUSE_PASSWORD'];

describe('integrations create', () => {
  test('defines an integration whose source can be read, active at once', async () => {
    const place = folder();
    const made = await on.json(
      fromFolder(
        'users',
        place,
        '--schedule',
        'every 15 minutes',
        '--contact-emails',
        'ada@example.com, bob@example.com',
        '--update-existing-only',
      ),
    );
    expect(made).toEqual({
      integration_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      workspace: 'shop',
      name: 'users',
      kind: 'attributes',
      status: 'active',
      warehouse_type: 'folder',
      source: { type: 'folder', path: place, format: 'csv' },
      schedule: 'every 15 minutes',
      next_scheduled_run: expect.stringMatching(/:(00|15|30|45):00\.000Z$/),
      contact_emails: 'ada@example.com,bob@example.com',
      update_existing_only: true,
      last_timestamp: null,
      last_job_started_at: null,
      last_job_status: null,
      created_at: expect.any(String),
    });
    expect(await on.json('integrations show users')).toEqual({
      ...made,
      next_scheduled_run: expect.any(String),
    });
  });

  test('a relative path is that of where the command runs', async () => {
    const made = await on.json(fromFolder('relative', './docs', '--draft'));
    expect(made.source.path).toBe(path.resolve('docs'));
  });

  test.each([
    ['PAYLOAD', 'external_id,updated_at\n'],
    ['UPDATED_AT', 'external_id,payload\n'],
    ['EXTERNAL_ID', 'id,updated_at,payload\n'],
  ])('a source without the column %s is refused by its name', async (column, text) => {
    expectRefusal(await on.run(fromFolder('lacking', folder(text))), column, '--draft');
  });

  test('with --draft a source that cannot be read makes a draft, which resume activates when it can', async () => {
    const place = path.join(temporaryFolder(), 'later');
    expectRefusal(await on.run(fromFolder('later', place)), 'the test of the source failed');
    expect(await on.json(fromFolder('later', place, '--draft', '--schedule', 'daily'))).toMatchObject({
      status: 'draft',
      next_scheduled_run: null,
    });
    expectRefusal(await on.run('integrations resume later'), 'the test of the source failed');
    expectRefusal(await on.run('integrations pause later'), 'draft');
    expectRefusal(await on.run('integrations sync later'), 'draft');
    mkdirSync(place);
    writeFileSync(path.join(place, 'rows.csv'), GOOD);
    expect(await on.json('integrations resume later')).toMatchObject({ status: 'active' });
  });

  test('a table serves one integration of a workspace', async () => {
    const place = folder();
    await on.json(fromFolder('first', place));
    expectRefusal(
      await on.run(fromFolder('second', `${place}/.`)),
      "'first'",
      'each table serves one integration',
    );
    await withKey.json(fromPostgres('table', 'users', ...env));
    expectRefusal(
      await withKey.run(fromPostgres('twice', 'public.users', ...env)),
      "'table'",
      'each table serves one',
    );
    const elsewhere = fromFolder('second', place).map((word) => (word === 'shop' ? 'school' : word));
    expect(await on.json(elsewhere)).toMatchObject({ workspace: 'school' });
  });

  test('a name is taken once in a workspace', async () => {
    await on.json(fromFolder('taken'));
    expectRefusal(await on.run(fromFolder('taken')), "named 'taken' already");
  });

  test.each([
    ['--schedule', 'every 5 minutes', 'more often than every 15 minutes'],
    ['--schedule', 'often', 'is no schedule'],
    ['--contact-emails', 'ada', "'ada' is no email address"],
  ])('%s %j is refused with the rule', async (option, value, rule) => {
    expectRefusal(await on.run(fromFolder('wrong', folder(), option, value)), rule);
  });

  test('what a source needs is named', async () => {
    const bare = (source: string) => on.run(create('bare', '--kind', 'events', '--source', source));
    expectRefusal(await bare('postgres'), '--host, --database, --table, --user');
    expectRefusal(await bare('folder'), '--path, --format');
    expectRefusal(await bare('s3'), '--bucket, --region, --format, --access-key-id');
    expectRefusal(
      await on.run(create('bare', '--kind', 'catalogs', '--source', 'folder')),
      "'catalogs'",
      'attributes, events',
    );
  });
});

describe('credentials', () => {
  test('without a key none are stored, and the refusal says how to make one', async () => {
    expectRefusal(
      await on.run(fromPostgres('secret', 'events', ...env)),
      'INTEGRATION_KEY',
      'openssl rand -base64 32',
    );
  });

  test('are stored encrypted and shown by no command', async () => {
    const made = await withKey.json(fromPostgres('secret', 'events', ...env));
    expect(Object.keys(made)).not.toContain('credentials');
    const password = decodeURIComponent(warehouse.password) || 'trusted';
    const { rows } = await pool.query('select credentials, source from integrations where id = $1', [
      made.integration_id,
    ]);
    expect(decryptCredentials(rows[0].credentials, made.integration_id, keysOf(KEY))).toEqual({
      user: decodeURIComponent(warehouse.username),
      password,
    });
    expect(Object.keys(rows[0].source).sort()).toEqual(['database', 'host', 'port', 'table', 'tls', 'type']);
    for (const verb of ['show secret', 'test secret', 'list', 'pause secret', 'resume secret']) {
      const { code, stdout } = await withKey.run(`integrations ${verb} --json`);
      expect(code).toBe(0);
      expect(stdout).not.toMatch(/credential|"password"|"user"/);
    }
  });

  test('come from a variable, a file or stdin, and never from the command line', async () => {
    const file = path.join(temporaryFolder(), 'secret');
    writeFileSync(file, `${decodeURIComponent(warehouse.password) || 'trusted'}\n`);
    expect(await withKey.json(['integrations', 'update', 'secret', '--secret-file', file])).toMatchObject({
      name: 'secret',
    });
    expect(await withKey.json('integrations test secret')).toMatchObject({
      columns: ['updated_at', 'external_id', 'payload'],
    });
    const needed = (...more: string[]) => withKey.run(fromPostgres('needed', 'lost', ...more));
    expectRefusal(await needed(), '--secret-env or --secret-file');
    expectRefusal(await needed('--secret-env', 'NOWHERE'), 'no variable NOWHERE');
    expectRefusal(await needed('--secret-file', `${file}.not`), '--secret-file cannot be read');
    expectRefusal(
      await needed('--secret-env', 'WRONG', '--secret-file', file),
      'one of --secret-env and --secret-file',
    );
    expectRefusal(await needed('--password', 'hunter2'), "unknown option '--password'");
  });

  test('that a later key encrypted cannot be read by the one before, and a list of keys reads both', async () => {
    expectRefusal(await withOtherKey.run('integrations test secret'), 'no key of INTEGRATION_KEY is the one');
    expectRefusal(await on.run('integrations test secret'), 'INTEGRATION_KEY is not set here');
    const rotating = penstockOn(url, {
      WAREHOUSE_PASSWORD: decodeURIComponent(warehouse.password) || 'trusted',
      INTEGRATION_KEY: `${OTHER_KEY},${KEY}`,
    });
    await rotating.json('integrations test secret');
    await rotating.json('integrations update secret --secret-env WAREHOUSE_PASSWORD');
    await withOtherKey.json('integrations test secret');
  });
});

describe('an integration', () => {
  let id: string;
  beforeAll(async () => {
    id = (await on.json(fromFolder('life', folder(), '--schedule', '30 4 * * 1'))).integration_id;
    await on.json(fromFolder('life').map((word) => (word === 'shop' ? 'school' : word)));
  });
  const run = (verb: string) => on.run(`integrations ${verb}`);
  const json = (verb: string) => on.json(`integrations ${verb}`);

  test('is found by its id, or by its name in a workspace', async () => {
    expect(await json('show life --workspace shop')).toMatchObject({ integration_id: id });
    expect(await json(`show ${id}`)).toMatchObject({ integration_id: id });
    expectRefusal(await run('show life'), '--workspace', 'shop', 'school');
    expectRefusal(await run('show nothing'), "'nothing'", 'integrations list');
    expectRefusal(await run(`show ${id} --workspace school`), id);
  });

  test('is listed page by page', async () => {
    const { integrations: all, next } = await json('list');
    expect(next).toBeNull();
    expect(all).toContainEqual(
      expect.objectContaining({ integration_id: id, schedule: '30 4 * * 1', status: 'active' }),
    );
    const first = await json('list --workspace shop --limit 2');
    const rest = await json(`list --workspace shop --after ${first.next}`);
    expect([...first.integrations, ...rest.integrations]).toEqual(
      all.filter((one: { workspace: string }) => one.workspace === 'shop'),
    );
    expect((await run('list')).stdout).toMatch(/^integration_id +workspace +name +kind +source +status /);
  });

  test('is paused and resumed; paused, it has no next run and is not synced', async () => {
    expect(await json(`pause ${id}`)).toMatchObject({ status: 'paused', next_scheduled_run: null });
    expectRefusal(await run(`sync ${id}`), 'paused', 'integrations resume');
    expect(await json(`resume ${id}`)).toMatchObject({
      status: 'active',
      next_scheduled_run: expect.any(String),
    });
  });

  test('changes its schedule and contacts', async () => {
    expect(await json(`update ${id} --on-demand --contact-emails ada@example.com`)).toMatchObject({
      schedule: null,
      next_scheduled_run: null,
      contact_emails: 'ada@example.com',
    });
    expect(await json(`update ${id} --schedule daily`)).toMatchObject({ schedule: 'daily' });
    expectRefusal(await run(`update ${id}`), '--schedule, --on-demand');
    expectRefusal(await run(`update ${id} --schedule daily --on-demand`), 'one of');
    expectRefusal(await run(`update ${id} --kind events`), "unknown option '--kind'");
  });

  test('is synced once at a time, can be cancelled, and tells its jobs and the rows that failed', async () => {
    expectRefusal(await run(`cancel ${id}`), 'no job');
    const first = await json(`sync ${id}`);
    expect(first).toMatchObject({ status: 'running', asked_by: 'operator', finished_at: null });
    expectRefusal(await run(`sync ${id}`), 'in progress');
    expectRefusal(await run(`delete ${id}`), 'in progress', 'integrations cancel');
    const cancelled = await json(`cancel ${id}`);
    expect(cancelled).toMatchObject({ job_id: first.job_id, cancelled_at: expect.any(String) });
    expect((await json(`cancel ${id}`)).cancelled_at).toBe(cancelled.cancelled_at);

    await pool.query(
      `insert into sync_row_errors (job_id, number, updated_at, identifier, payload, reason)
       select $1, number, '2026-01-31', 'ada', '{', 'payload is no JSON' from generate_series(7, 9) as number`,
      [first.job_id],
    );
    await pool.query(
      `update sync_jobs set status = 'error', message = 'cancelled by the operator', finished_at = now(), rows_synced = 5, rows_failed = 3
       where id = $1`,
      [first.job_id],
    );
    const second = on.run(`integrations sync ${id} --wait --json`);
    const running = await waitUntil(
      async () => (await pool.query('select id from sync_jobs where finished_at is null')).rows[0]?.id,
      { what: 'the second job' },
    );
    await pool.query(
      "update sync_jobs set status = 'config_error', message = 'wrong password', finished_at = now() where id = $1",
      [running],
    );
    const { code, stdout, stderr } = await second;
    expect({ code, stderr }).toEqual({ code: 1, stderr: 'error: the sync failed: wrong password\n' });
    expect(JSON.parse(stdout)).toMatchObject({ job_id: running, status: 'config_error' });

    const page = await json(`logs ${id} --limit 1`);
    expect(page.sync_jobs).toMatchObject([{ job_id: running, message: 'wrong password' }]);
    const rest = await json(`logs ${id} --after ${page.next}`);
    expect(rest).toMatchObject({
      sync_jobs: [{ job_id: first.job_id, rows_synced: 5, rows_failed: 3 }],
      next: null,
    });
    const rows = await json(`logs ${id} --job ${first.job_id} --limit 2`);
    expect(rows).toEqual({
      row_errors: [7, 8].map((row) => ({
        row,
        updated_at: '2026-01-31',
        identifier: 'ada',
        reason: 'payload is no JSON',
        payload: '{',
      })),
      next: '8',
    });
    expect((await json(`logs ${id} --job ${first.job_id} --after 8`)).row_errors).toMatchObject([{ row: 9 }]);
    expectRefusal(await run(`logs ${id} --job 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f`), '019a2f6e');
    expectRefusal(await run(`logs ${id} --after x`), 'id of a job');
    expect(await json(`show ${id}`)).toMatchObject({ last_job_status: 'config_error' });
  });

  test('is deleted with its jobs', async () => {
    expect(await json(`delete ${id}`)).toEqual({ integration_id: id, deleted: true });
    expectRefusal(await run(`show ${id}`), id);
    expect((await pool.query('select from sync_jobs where integration_id = $1', [id])).rows).toEqual([]);
  });
});
