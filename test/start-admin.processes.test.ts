import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
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
import { quickly, type TestProcess } from './setup/processes.ts';
import { startReceiver } from './streams/receiver.ts';

/** Returns the kinds of queue that the processes report. */
function queuesOf(start: TestProcess): Set<unknown> {
  return new Set(start.log.filter(({ msg }) => msg === 'ready').flatMap(({ queue }) => queue ?? []));
}

const LAST_ERRORS = 'select last_error from stream_destinations';

/** Checks whether a Postgres server runs in the data folder. */
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

  test('uses the key of BOOTSTRAP_API_KEY, and does not print it', async () => {
    expect(await track(env.PORT, key)).toBe(201);
    expect(output(start)).not.toContain(key);
    expect(output(start)).not.toMatch(KEY);
  });

  test('stores what is tracked, and uses the given Redis and the embedded Postgres', async () => {
    await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
      what: 'what was tracked',
    });
    expect(hasPostgres(env.DATA_DIR)).toBe(true);
    expect(queuesOf(start)).toEqual(new Set(['redis']));
  });

  test.each([
    ['npx penstock', 'npx', ['penstock']],
    ['npm run -s penstock --', 'npm', ['run', '-s', 'penstock', '--']],
  ])('%s keys create returns a key that the endpoint accepts at once', async (_, file, words) => {
    const args = 'keys create --workspace default --permissions users.track --json'.split(' ');
    const compiled = statSync(path.join(packageRoot, 'dist/src/start.js')).mtimeMs;
    const { stdout } = await promisify(execFile)(file, [...words, ...args], {
      cwd: packageRoot,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, DATA_DIR: env.DATA_DIR },
    });
    const { api_key: secret } = JSON.parse(stdout);
    expect(secret).toMatch(KEY);
    expect(await track(env.PORT, secret)).toBe(201);
    // The first `npx` in a folder installs the package. It must not rewrite files that processes run from.
    expect(statSync(path.join(packageRoot, 'dist/src/start.js')).mtimeMs).toBe(compiled);
  });

  test('an integration on this machine, created by penstock, is read with the key of DATA_DIR', async () => {
    const warehouse = new URL((await createBareDatabase()).url);
    expect(warehouse.hostname).toBe('127.0.0.1');
    await runQuery(
      warehouse.href,
      `create table exported as
       select now() as updated_at, 'lise' as external_id, '{"first_name":"Lise"}'::jsonb as payload`,
    );
    const own = penstockWith({ DATA_DIR: env.DATA_DIR, SECRET: warehouse.password });
    const { integration_id: id } = await own(
      ...'integrations create --workspace default --name users --kind attributes --source postgres'.split(
        ' ',
      ),
      ...`--host ${warehouse.hostname} --port ${warehouse.port} --database ${warehouse.pathname.slice(1)}`.split(
        ' ',
      ),
      ...`--table exported --tls off --user ${warehouse.username} --secret-env SECRET`.split(' '),
    );
    const address = readFileSync(path.join(env.DATA_DIR, 'database-url'), 'utf8').trim();
    const rows = await runQuery(address, `select credentials from integrations where id = '${id}'`);
    const kept = readFileSync(path.join(env.DATA_DIR, 'integration-key'), 'utf8').trim();
    expect(decryptCredentials(rows[0].credentials, id, keysOf(kept))).toEqual({
      user: warehouse.username,
      password: warehouse.password,
    });
    await own('integrations', 'sync', id, '--wait');
    await waitUntil(async () => (await readBack(env.PORT, key, 'lise')).users[0]?.external_id === 'lise', {
      what: 'the row of the warehouse',
    });
  });

  test('a stream to this machine, created by penstock, receives messages from sync', async () => {
    const receiver = await startReceiver();
    const own = penstockWith({ DATA_DIR: env.DATA_DIR });
    await own(...`streams create --workspace default --name here --url ${receiver.url}`.split(' '));
    await waitUntil(
      async () => {
        await track(env.PORT, key, [{ external_id: 'emmy', first_name: 'Emmy' }]);
        return receiver.messages().some(({ user }) => user?.external_id === 'emmy');
      },
      { what: 'the change at the destination', deadline: 60_000 },
    );
  });

  test('its processes end by themselves when it is killed', async () => {
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
  ])('%s and DATABASE_URL: what is tracked can be read back, and no store is started', async (_, queue) => {
    const env = await settings();
    const stores = {
      ...(queue === 'redis' && { REDIS_URL: (await startRedis()).url }),
      DATABASE_URL: (await createBareDatabase()).url,
      INTEGRATION_KEY: randomBytes(32).toString('hex'),
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
    const receiver = await startReceiver();
    const create = `streams create --workspace default --name here --url ${receiver.url}`.split(' ');
    await expect(penstockWith(stores)(...create)).rejects.toThrow('REFUSED_NETWORKS');
    await penstockWith({ ...stores, ALLOWED_NETWORKS: '127.0.0.0/8' })(...create);
    expect(await track(env.PORT, key)).toBe(201);
    const refusal = async () => JSON.stringify(await runQuery(stores.DATABASE_URL, LAST_ERRORS));
    await waitUntil(async () => (await refusal()).includes('REFUSED_NETWORKS refuses'), {
      what: 'the refusal of a private address by sync',
    });
    expect(receiver.requests).toBe(0);
  });

  test('a start that fails before its greeting prints the new key in its last line', async () => {
    const { url } = await startRedis({ args: ['--maxmemory-policy', 'allkeys-lru'] });
    const start = begin({ ...(await settingsWithCluster()), REDIS_URL: url });
    expect(await start.exit).toMatchObject({ code: 1 });
    expect(output(start)).toContain('set maxmemory-policy to noeviction');
    expect(output(start)).not.toContain('Penstock is ready');
    expect(start.log.at(-1)!.text).toMatch(KEY);
    expect(output(start).match(new RegExp(KEY, 'g'))).toHaveLength(1);
  });
});

/** Runs `penstock` with only these settings. @returns its output, parsed as JSON */
const penstockWith = (env: Record<string, string>) => {
  return async (...args: string[]) => {
    const options = { cwd: packageRoot, env: { PATH: process.env.PATH, ...env } };
    const words = [...quickly, 'dist/src/cli.js', ...args, '--json'];
    const { stdout } = await promisify(execFile)(process.execPath, words, options);
    return JSON.parse(stdout);
  };
};

async function runQuery(url: string, statement: string) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(statement).finally(() => client.end());
  return rows;
}
