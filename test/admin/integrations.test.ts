import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { decryptCredentials, keysOf } from '../../src/integrations/source.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import {
  create,
  createScene,
  createWarehouse,
  csvFolder,
  fromFolder,
  fromPostgres,
  GOOD,
  inSchool,
  type Scene,
  type Warehouse,
} from './integrations-scene.ts';
import { expectRefusal, type PenstockOn } from './penstock.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const OTHER_KEY = Buffer.alloc(32, 8).toString('hex');

let scene: Scene;
let warehouse: Warehouse;
/** Commands without INTEGRATION_KEY, with KEY, and with OTHER_KEY. */
let on: PenstockOn;
let withKey: PenstockOn;
let withOtherKey: PenstockOn;
beforeAll(async () => {
  scene = await createScene();
  warehouse = await createWarehouse();
  const secrets = { WAREHOUSE_PASSWORD: warehouse.password };
  on = scene.with(secrets);
  withKey = scene.with({ ...secrets, INTEGRATION_KEY: KEY });
  withOtherKey = scene.with({ ...secrets, INTEGRATION_KEY: OTHER_KEY });
  return scene.stop;
});

const env = ['--secret-env', 'WAREHOUSE_PASSWORD'];

describe('integrations create', () => {
  test('creates an active integration if its source can be read', async () => {
    const folder = csvFolder();
    const made = await on.json(
      fromFolder(
        'users',
        folder,
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
      source: { type: 'folder', path: folder, format: 'csv' },
      schedule: 'every 15 minutes',
      next_scheduled_run: expect.stringMatching(/:(00|15|30|45):00\.000Z$/),
      contact_emails: 'ada@example.com,bob@example.com',
      update_existing_only: true,
      last_timestamp: null,
      last_job_started_at: null,
      last_job_status: null,
      created_at: expect.any(String),
    });
  });

  test('rejects a host in a refused network and names REFUSED_NETWORKS', async () => {
    const refusing = { WAREHOUSE_PASSWORD: warehouse.password, INTEGRATION_KEY: KEY, ALLOWED_NETWORKS: '' };
    const closed = scene.with({ ...refusing, REFUSED_NETWORKS: 'private' });
    for (const hostname of ['127.0.0.1', '::1', '169.254.169.254'])
      expectRefusal(
        await closed.run(fromPostgres({ ...warehouse, hostname }, 'inside', 'users', ...env)),
        `${hostname} is in a network that REFUSED_NETWORKS refuses`,
      );
  });

  test('rejects a source with a missing column and names the column', async () => {
    const completion = csvFolder('external_id,updated_at\n');
    expectRefusal(
      await on.run(fromFolder('lacking', completion)),
      'the column PAYLOAD is missing',
      '--draft',
    );
  });

  test('--draft stores an unreadable source; resume activates it once it can be read', async () => {
    // A relative path starts at the working directory of the command.
    const folder = path.join(temporaryFolder(), 'later');
    const draft = fromFolder('later', path.relative(packageRoot, folder), '--draft', '--schedule', 'daily');
    expect(await on.json(draft)).toMatchObject({
      status: 'draft',
      source: { path: folder },
      next_scheduled_run: null,
    });
    expectRefusal(await on.run('integrations resume later'), 'the test of the source failed');
    expectRefusal(await on.run('integrations sync later'), 'draft');
    mkdirSync(folder);
    writeFileSync(path.join(folder, 'rows.csv'), GOOD);
    expect(await on.json('integrations resume later')).toMatchObject({ status: 'active' });
  });

  test('a table can have only one integration per workspace', async () => {
    const folder = csvFolder();
    const source = { type: 'folder', path: folder, format: 'csv' } as const;
    await createIntegration(scene.pool, scene.shop, { name: 'first', source });
    const second = fromFolder('second', `${folder}/.`);
    expectRefusal(await on.run(second), "'first'", 'a table can have only one integration');
    expect(await on.json(inSchool(second))).toMatchObject({ workspace: 'school' });
  });

  test('rejects a name that is already used in the workspace', async () => {
    await createIntegration(scene.pool, scene.shop, { name: 'taken' });
    expectRefusal(await on.run(fromFolder('taken')), "with the name 'taken'");
  });

  test.each([
    ['--schedule', 'every 5 minutes', 'more often than every 15 minutes'],
    ['--contact-emails', 'ada', "'ada' is not an email address"],
  ])('rejects %s %j with the rule', async (option, value, rule) => {
    expectRefusal(await on.run(fromFolder('wrong', csvFolder(), option, value)), rule);
  });

  test('lists the missing options of a source, and rejects a password in --endpoint', async () => {
    const bare = (source: string) => on.run(create('bare', '--kind', 'events', '--source', source));
    expectRefusal(await bare('postgres'), '--host, --database, --table, --user');
    const s3 = ['--bucket', 'b', '--region', 'r', '--format', 'csv', '--access-key-id', 'i'];
    const endpoint = create(
      'bare',
      '--kind',
      'events',
      '--source',
      's3',
      ...s3,
      '--endpoint',
      'https://me:hunter2@s3',
    );
    const refused = await on.run(endpoint);
    expectRefusal(refused, '--endpoint must be a URL', 'without user and password');
    expect(refused.stderr).not.toContain('hunter2');
    expectRefusal(await bare('s3'), '--bucket, --region, --format, --access-key-id');
  });
});

describe('credentials', () => {
  test('cannot be stored without a key, and the error has the command that creates a key', async () => {
    expectRefusal(
      await on.run(fromPostgres(warehouse, 'secret', 'events', ...env)),
      'INTEGRATION_KEY',
      'openssl rand -base64 32',
    );
  });

  test('are stored encrypted and never printed', async () => {
    const made = await withKey.json(fromPostgres(warehouse, 'secret', 'events', ...env));
    expect(Object.keys(made)).not.toContain('credentials');
    const { rows } = await scene.pool.query('select credentials, source from integrations where id = $1', [
      made.integration_id,
    ]);
    expect(decryptCredentials(rows[0].credentials, made.integration_id, keysOf(KEY))).toEqual({
      user: warehouse.user,
      password: warehouse.password,
    });
    expect(Object.keys(rows[0].source).sort()).toEqual(['database', 'host', 'port', 'table', 'tls', 'type']);
    for (const verb of ['show secret', 'test secret', 'list']) {
      const { code, stdout } = await withKey.run(`integrations ${verb} --json`);
      expect(code).toBe(0);
      expect(stdout).not.toMatch(/credential|"password"|"user"/);
    }
  });

  test('are read from a variable, a file or stdin, and never from the command line', async () => {
    const file = path.join(temporaryFolder(), 'secret');
    writeFileSync(file, `${warehouse.password}\n`);
    expect(await withKey.json(['integrations', 'update', 'secret', '--secret-file', file])).toMatchObject({
      name: 'secret',
    });
    const needed = (...more: string[]) => withKey.run(fromPostgres(warehouse, 'needed', 'lost', ...more));
    expectRefusal(await needed(), '--secret-env or --secret-file');
    expectRefusal(await needed('--secret-env', 'NOWHERE'), 'no variable NOWHERE');
    expectRefusal(await needed('--password', 'hunter2'), "unknown option '--password'");
  });

  test('need the key that encrypted them; a list of keys reads old and new ones', async () => {
    expectRefusal(
      await withOtherKey.run('integrations test secret'),
      'INTEGRATION_KEY does not contain the key',
    );
    const rotating = scene.with({
      WAREHOUSE_PASSWORD: warehouse.password,
      INTEGRATION_KEY: `${OTHER_KEY},${KEY}`,
    });
    await rotating.json('integrations update secret --secret-env WAREHOUSE_PASSWORD');
    await withOtherKey.json('integrations test secret');
  });
});
