import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { decryptCredentials, keysOf } from '../src/integrations/source.ts';
import { packageRoot } from '../src/platform/files.ts';
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
import type { TestProcess } from './setup/processes.ts';

/** The kinds of queue that its processes say they have. */
function queuesOf(start: TestProcess): Set<unknown> {
  return new Set(start.log.filter(({ msg }) => msg === 'ready').flatMap(({ queue }) => queue ?? []));
}

/** Whether a server that is in its data folder, or on it, runs. */
const hasPostgres = (folder: string) =>
  runningOn(folder).some(({ command }) => command.includes(`${folder}/`));

describe('npm start with REDIS_URL, BOOTSTRAP_API_KEY and the embedded Postgres', () => {
  const key = 'pk_chosen_by_someone';
  let env: Awaited<ReturnType<typeof settings>>;
  let start: TestProcess;
  beforeAll(async () => {
    env = await settingsWithCluster();
    const redis = await startRedis();
    start = await startAndWait({ ...env, REDIS_URL: redis.url, BOOTSTRAP_API_KEY: key });
  });
  afterAll(() => endStarted());

  test('that is the key of the first start, and is not shown', async () => {
    expect(await track(env.PORT, key)).toBe(201);
    expect(output(start)).not.toContain(key);
    expect(output(start)).not.toMatch(KEY);
  });

  test('what is tracked can be read back, and nothing is started that is there', async () => {
    await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
      what: 'what was tracked',
    });
    expect(hasPostgres(env.DATA_DIR)).toBe(true);
    expect(queuesOf(start)).toEqual(new Set(['redis']));
  });

  test.each([
    ['npx penstock', 'npx', ['penstock']],
    ['npm run -s penstock --', 'npm', ['run', '-s', 'penstock', '--']],
  ])('%s keys create makes a key that opens the endpoint at once', async (_, file, words) => {
    const args = 'keys create --workspace default --permissions users.track --json'.split(' ');
    const compiled = statSync(path.join(packageRoot, 'dist/src/start.js')).mtimeMs;
    const { stdout } = await promisify(execFile)(file, [...words, ...args], {
      cwd: packageRoot,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, DATA_DIR: env.DATA_DIR },
    });
    const { api_key: secret } = JSON.parse(stdout);
    expect(secret).toMatch(KEY);
    expect(await track(env.PORT, secret)).toBe(201);
    // The first `npx` in a folder installs it, which must not write anew what processes run from.
    expect(statSync(path.join(packageRoot, 'dist/src/start.js')).mtimeMs).toBe(compiled);
  });

  test('stores the credentials of an integration with the key that npm start keeps in DATA_DIR', async () => {
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

  test('when it is killed, its processes end by themselves', async () => {
    start.kill('SIGKILL');
    await start.exit;
    await waitUntil(() => runningOn(env.DATA_DIR).length === 0, { what: 'the end of what was left behind' });
  });
});

describe('npm start with stores of your own', () => {
  afterEach(() => endStarted());

  test.each([
    ['REDIS_URL', 'redis'],
    ['a queue in Postgres', 'postgres'],
  ])(
    '%s and DATABASE_URL: what is tracked can be read back, and nothing is started that is there',
    async (_, queue) => {
      const env = await settings();
      const stores = {
        ...(queue === 'redis' && { REDIS_URL: (await startRedis()).url }),
        DATABASE_URL: (await createBareDatabase()).url,
      };
      const start = await startAndWait({ ...env, ...stores });
      const key = KEY.exec(output(start))![0];
      expect(await track(env.PORT, key)).toBe(201);
      await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
        what: 'what was tracked',
      });
      expect(hasPostgres(env.DATA_DIR)).toBe(false);
      expect(readdirSync(env.DATA_DIR)).toEqual([]);
      expect(queuesOf(start)).toEqual(new Set([queue]));
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
