import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { decryptCredentials, keysOf } from '../src/integrations/definition.ts';
import { packageRoot } from '../src/platform/package-root.ts';
import { createBareDatabase, startRedis, waitUntil } from './setup/fixtures.ts';
import {
  begin,
  endStarted,
  KEY,
  output,
  readBack,
  runningOn,
  settings,
  settingsWithCluster,
  startAndWait,
  track,
} from './setup/npm-start.ts';

describe('the admin command on a running npm start', () => {
  let env: Awaited<ReturnType<typeof settings>>;
  beforeAll(async () => {
    env = await settingsWithCluster();
    await startAndWait(env);
  });
  afterAll(() => endStarted());

  test.each([
    ['npx penstock', 'npx', ['penstock']],
    ['npm run -s penstock --', 'npm', ['run', '-s', 'penstock', '--']],
  ])('%s keys create makes a key that opens the endpoint at once', async (_, file, words) => {
    const args = 'keys create --workspace default --permissions users.track --json'.split(' ');
    const { stdout } = await promisify(execFile)(file, [...words, ...args], {
      cwd: packageRoot,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, DATA_DIR: env.DATA_DIR },
    });
    const { api_key: secret } = JSON.parse(stdout);
    expect(secret).toMatch(KEY);
    expect(await track(env.PORT, secret)).toBe(201);
  });

  test('doctor finds nothing wrong with it and ends with 0; status shows each of its processes', async () => {
    const penstock = async (word: string) => {
      const { stdout } = await promisify(execFile)(process.execPath, ['dist/src/cli.js', word, '--json'], {
        cwd: packageRoot,
        env: { PATH: process.env.PATH, DATA_DIR: env.DATA_DIR },
      });
      return JSON.parse(stdout);
    };
    expect(await penstock('doctor')).toMatchObject({ healthy: true, errors: 0 });
    const { processes, lanes } = await penstock('status');
    expect(processes).toEqual(
      ['board', 'sync', 'web', 'worker'].map((name) =>
        expect.objectContaining({ name, alive: true, missing: [], resident_bytes: expect.any(Number) }),
      ),
    );
    expect(lanes).toEqual([{ lane: 'lane-0', depth: 0, oldest_seconds: 0 }]);
  });

  test('stores the credentials of an integration with the key that npm start keeps in DATA_DIR', async () => {
    const env = await settingsWithCluster();
    await startAndWait(env);
    const warehouse = new URL((await createBareDatabase()).url);
    await ask(
      warehouse.href,
      'create table exported (updated_at timestamptz, external_id text, payload jsonb)',
    );
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [
        ...[
          'dist/src/cli.js',
          'integrations',
          'create',
          '--json',
          '--workspace',
          'default',
          '--name',
          'users',
        ],
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
        ...['--database', warehouse.pathname.slice(1), '--table', 'exported', '--tls', 'off'],
        ...['--user', warehouse.username, '--secret-env', 'SECRET'],
      ],
      {
        cwd: packageRoot,
        env: { PATH: process.env.PATH, DATA_DIR: env.DATA_DIR, SECRET: warehouse.password },
      },
    );
    const { integration_id: id } = JSON.parse(stdout);
    const own = readFileSync(path.join(env.DATA_DIR, 'database-url'), 'utf8').trim();
    const rows = await ask(own, `select credentials from integrations where id = '${id}'`);
    const key = readFileSync(path.join(env.DATA_DIR, 'integration-key'), 'utf8').trim();
    expect(decryptCredentials(rows[0].credentials, id, keysOf(key))).toEqual({
      user: warehouse.username,
      password: warehouse.password,
    });
  });
});

describe('npm start with stores of your own', () => {
  afterEach(() => endStarted());

  test.each([
    ['REDIS_URL', 'DATABASE_URL'],
    ['REDIS_URL', 'the embedded Postgres'],
    ['a queue in Postgres', 'DATABASE_URL'],
  ])(
    '%s and %s: what is tracked can be read back, and nothing is started that is there',
    async (...given) => {
      const env = await settings();
      const stores = {
        ...(given.includes('REDIS_URL') && { REDIS_URL: (await startRedis()).url }),
        ...(given.includes('DATABASE_URL') && { DATABASE_URL: (await createBareDatabase()).url }),
      };
      const start = await startAndWait({ ...env, ...stores });
      const key = KEY.exec(output(start))![0];
      expect(await track(env.PORT, key)).toBe(201);
      await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
        what: 'what was tracked',
      });
      const embedded = runningOn(env.DATA_DIR).some(({ command }) => command.includes(`${env.DATA_DIR}/`));
      expect(embedded).toBe(stores.DATABASE_URL === undefined);
      if (stores.DATABASE_URL) expect(readdirSync(env.DATA_DIR)).toEqual([]);
      const kinds = start.log.filter(({ msg }) => msg === 'ready').flatMap(({ queue }) => queue ?? []);
      expect(new Set(kinds)).toEqual(new Set([stores.REDIS_URL ? 'redis' : 'postgres']));
    },
  );

  test('a start that never greets shows the key it has made in its last line', async () => {
    const { url } = await startRedis({ args: ['--maxmemory-policy', 'allkeys-lru'] });
    const start = begin({ ...(await settingsWithCluster()), REDIS_URL: url });
    expect(await start.exit).toMatchObject({ code: 1 });
    expect(output(start)).toContain('set maxmemory-policy to noeviction');
    expect(output(start)).not.toContain('Penstock is ready');
    expect(start.log.at(-1)!.text).toMatch(KEY);
    expect(output(start).match(new RegExp(KEY, 'g'))).toHaveLength(1);
  });
});

async function ask(url: string, statement: string) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(statement).finally(() => client.end());
  return rows;
}
