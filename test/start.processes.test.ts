import { execFile, spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { readEmbeddedUrl } from '../src/embedded/address.ts';
import { packageRoot } from '../src/platform/files.ts';
import { createDatabase, waitUntil } from './setup/fixtures.ts';
import {
  begin,
  endStarted,
  KEY,
  output,
  readBack,
  runningOn,
  settings,
  startAndWait,
  track,
} from './setup/npm-start.ts';
import type { TestProcess } from './setup/processes.ts';

describe('consecutive starts on one data folder', () => {
  let env: Awaited<ReturnType<typeof settings>> & { DATABASE_MAX_CONNECTIONS: string };
  let start: TestProcess;
  let key: string;
  beforeAll(async () => {
    env = { ...(await settings()), DATABASE_MAX_CONNECTIONS: '40' };
    start = await startAndWait(env);
  });
  afterAll(() => endStarted());

  test('the first one creates an API key and prints it, and its curl lines work unchanged', async () => {
    expect(output(start)).toMatch(KEY);
    key = KEY.exec(output(start))![0];
    expect(output(start).match(/shown this once/g)).toHaveLength(1);
    expect(output(start)).not.toContain('API key of the workspace default');

    const lines = curlLines(start);
    expect(lines).toHaveLength(3);
    expect(lines.join()).not.toContain('$');
    expect(await run(lines[0]!)).toBe('{"attributes_processed":1,"events_processed":1,"message":"success"}');
    const profile = await waitUntil(async () => JSON.parse(await run(lines[1]!)).users[0], {
      what: 'the profile',
    });
    expect(profile).toMatchObject({
      external_id: 'ada',
      first_name: 'Ada',
      custom_attributes: { favourite_colour: 'teal' },
      custom_events: [{ name: 'signed_up', count: 1 }],
    });
    expect(await run(lines[2]!)).toBe('console sign-in: HTTP 200\n');
  });

  test('the first one logs at once that it creates a database, and counts its migrations', () => {
    expect(start.log[0]).toMatchObject({
      msg: 'creating the database of the first start',
      data_dir: env.DATA_DIR,
    });
    expect(start.log.map(({ msg }) => msg)).toContain('migrated');
    const migrated = start.log.find(({ msg }) => msg === 'migrated')!;
    expect(migrated).toEqual({
      ...{ level: 30, time: expect.any(String), process: 'start', pid: start.pid, msg: 'migrated' },
      migrations: expect.any(Number),
    });
  });

  test('every log line names its process, and lines of services their pid and instance', () => {
    const lines = start.log.filter(({ text }) => text === undefined);
    for (const line of lines)
      expect(line).toMatchObject({ process: expect.any(String), pid: expect.any(Number) });
    const services = lines.filter(({ process }) => process !== 'start');
    expect(new Set(services.map(({ pid, instance }) => `${pid} ${instance}`)).size).toBe(4);
  });

  test('the processes stay within DATABASE_MAX_CONNECTIONS', async () => {
    const client = new pg.Client({ connectionString: readEmbeddedUrl(env.DATA_DIR)! });
    await client.connect();
    const { rows } = await client.query(
      "select count(*)::integer from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()",
    );
    await client.end();
    expect(rows[0].count).toBeGreaterThan(4);
    expect(rows[0].count).toBeLessThanOrEqual(40);
  });

  test('doctor reports no problem and ends with 0; status shows each of its processes', async () => {
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
    expect(lanes).toEqual([{ lane: 'lane-0', depth: 0, oldest_seconds: 0, worked_by: expect.any(Array) }]);
  });

  test('a second start on the same data names the running one and exits 1', async () => {
    const second = begin({ ...(await settings()), DATA_DIR: env.DATA_DIR });
    expect(await second.exit).toMatchObject({ code: 1 });
    expect(output(second)).toContain(
      `another npm start (process ${start.pid}) is running on ${env.DATA_DIR}`,
    );
    expect((await fetch(`http://127.0.0.1:${env.PORT}/readyz`)).status).toBe(200);
  });

  test('a killed process is restarted', async () => {
    const web = runningOn(env.DATA_DIR).find(({ command }) => command.includes('dist/src/web.js'))!;
    process.kill(web.pid, 'SIGKILL');
    await waitUntil(() => start.log.some((line) => line.name === 'web' && line.signal === 'SIGKILL'), {
      what: 'the log line about it',
    });
    await waitUntil(async () => (await fetch(`http://127.0.0.1:${env.PORT}/readyz`)).ok, {
      what: 'a new web',
    });
  });

  test('SIGTERM ends it with 0; the next start keeps data and key, and does not print the key', async () => {
    start.kill('SIGTERM');
    expect(await start.exit).toMatchObject({ code: 0 });
    start = await startAndWait(env);
    expect(output(start)).not.toMatch(KEY);
    expect(curlLines(start)[0]).toContain('$PENSTOCK_API_KEY');
    await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
      what: 'what was tracked before the stop',
    });
  });

  test('a start after a kill succeeds; Ctrl-C ends all processes in order', async () => {
    const attributes = [{ external_id: 'grace', first_name: 'Grace' }];
    expect(await track(env.PORT, key, attributes)).toBe(201);
    start.kill('SIGKILL');
    await start.exit;
    // A terminal sends the signal to the whole process group: npm and everything that it runs.
    const npm = spawn('npm', ['start'], {
      cwd: packageRoot,
      detached: true,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    npm.stdout.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
    });
    const exit = new Promise((resolve) => npm.once('exit', (code) => resolve(code)));
    try {
      await waitUntil(() => text.includes('Penstock is ready'), { what: 'the greeting', deadline: 60_000 });
      await waitUntil(
        async () => (await readBack(env.PORT, key, 'grace')).users[0]?.external_id === 'grace',
        {
          what: 'what was accepted before the kill',
        },
      );
      expect(runningOn(env.DATA_DIR).length).toBeGreaterThan(4);
      process.kill(-npm.pid!, 'SIGINT');
      expect(await exit).toBe(0);
    } finally {
      if (npm.exitCode === null) process.kill(-npm.pid!, 'SIGKILL');
    }
    await waitUntil(() => runningOn(env.DATA_DIR).length === 0, { what: 'the end of all processes' });
    const stops = [...text.matchAll(/"process":"(\w+)".*"msg":"stopped"/g)].map((match) => match[1]);
    expect(stops).toEqual(['web', 'worker', 'sync', 'board', 'start']);
  });
});

describe('npm start', () => {
  afterEach(() => endStarted());

  test.each(['PORT', 'BOARD_PORT', 'WORKER_PORT', 'SYNC_PORT'] as const)(
    'a %s in use is reported by name',
    async (name) => {
      const env = await settings();
      const other = createServer();
      await new Promise<void>((resolve) => other.listen(Number(env[name]), '127.0.0.1', resolve));
      try {
        const start = begin(env);
        expect(await start.exit).toMatchObject({ code: 1 });
        expect(output(start)).toContain(`${name} ${env[name]} is in use on 127.0.0.1`);
        // A start that fails leaves no files.
        expect(readdirSync(env.DATA_DIR)).toEqual([]);
        // A failed start creates no key, because its output might never be read.
        expect(output(start)).not.toMatch(KEY);
        await waitUntil(() => runningOn(env.DATA_DIR).length === 0, { what: 'the end of all processes' });
      } finally {
        other.close();
      }
    },
  );

  test('a wrong setting is reported by name', async () => {
    const start = begin({ ...(await settings()), PORT: 'eighty' });
    expect(await start.exit).toMatchObject({ code: 1 });
    expect(output(start)).toContain('wrong setting: PORT must be integer (it is "eighty")');
  });

  test.each([
    [
      'a DATA_DIR that cannot be created',
      { DATA_DIR: '/proc/data' },
      'DATA_DIR /proc/data cannot be created or written to',
    ],
    [
      'a DATA_DIR that is a file',
      { DATA_DIR: '/etc/passwd' },
      'DATA_DIR /etc/passwd cannot be created or written to',
    ],
    [
      'a Postgres that is away',
      { DATABASE_URL: 'postgresql://p:secret@127.0.0.1:1/penstock' },
      'the Postgres server of DATABASE_URL refuses the connection (connect ECONNREFUSED 127.0.0.1:1). Start it, or correct',
    ],
    [
      'an address of another machine',
      { HOST: '192.0.2.1' },
      'HOST 192.0.2.1 is not an address of this machine; set HOST',
    ],
  ])('%s is reported by its setting, with the remedy', async (_, wrong, words) => {
    const start = begin({ ...(await settings()), ...wrong });
    expect(await start.exit).toMatchObject({ code: 1 });
    expect(output(start)).toContain(`npm start: ${words}`);
    expect(output(start).trim().split('\n')).toHaveLength(1);
    expect(output(start)).not.toContain('secret');
  });

  test.each([
    ['json', /^\{"level":40,.*"msg":"Redis at REDIS_URL does not answer .*Start Redis, correct REDIS_URL/m],
    [
      'readable',
      /^\d\d:\d\d:\d\d {2}start {4}WARN Redis at REDIS_URL does not answer .*Start Redis, correct/m,
    ],
  ])(
    'a Redis that is away is reported in one sentence while start waits (LOG_FORMAT=%s)',
    async (LOG_FORMAT, sentence) => {
      const { url: DATABASE_URL } = await createDatabase();
      const start = begin({
        ...(await settings()),
        DATABASE_URL,
        REDIS_URL: 'redis://127.0.0.1:1',
        LOG_FORMAT,
      });
      const logText = () => start.log.map(({ text, ...line }) => text ?? JSON.stringify(line)).join('\n');
      await waitUntil(() => sentence.test(logText()), { what: 'the sentence', deadline: 15_000 });
      start.kill('SIGTERM');
      expect(await start.exit).toMatchObject({ code: 0 });
    },
  );
});

function curlLines(start: TestProcess): string[] {
  return output(start)
    .split('\n')
    .filter((line) => line.startsWith('curl '));
}

function run(line: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const shell = spawn('/bin/sh', ['-c', line], { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    shell.stdout.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
    });
    shell.once('error', reject);
    shell.once('close', () => resolve(text));
  });
}
