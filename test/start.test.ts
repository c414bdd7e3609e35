import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { freePort } from '../src/embedded/ports.ts';
import { packageRoot } from '../src/package-root.ts';
import { startProcess, type TestProcess, temporaryFolder, waitUntil } from './setup/fixtures.ts';

const KEY = /pk_[\w-]{43}/;
const started: TestProcess[] = [];
afterEach(async () => {
  for (const start of started.splice(0)) {
    start.kill('SIGKILL');
    await start.exit;
  }
});

describe('npm start', () => {
  test('the first start makes an API key, shows it, and its curl lines work as they are', async () => {
    const env = await settings();
    const start = await startAndWait(env);
    const key = KEY.exec(output(start))?.[0];
    expect(key).toBeDefined();

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
    expect(await run(`${lines[2]} -o /dev/null -w '%{http_code} %{url_effective}'`)).toBe(
      `200 http://127.0.0.1:${env.BOARD_PORT}/`,
    );
  });

  test('BOOTSTRAP_API_KEY is the key of the first start and is not shown', async () => {
    const key = 'pk_chosen_by_someone';
    const env = { ...(await settings()), BOOTSTRAP_API_KEY: key };
    const start = await startAndWait(env);
    expect(await track(env.PORT, key)).toBe(201);
    expect(output(start)).not.toContain(key);
    expect(output(start)).not.toMatch(KEY);
  });

  test('a second start finds its data, the same key opens it, and nothing is shown again', async () => {
    const env = await settings();
    const first = await startAndWait(env);
    const key = KEY.exec(output(first))![0];
    expect(await track(env.PORT, key)).toBe(201);
    first.kill('SIGTERM');
    expect(await first.exit).toMatchObject({ code: 0 });

    const second = await startAndWait(env);
    expect(output(second)).not.toMatch(KEY);
    expect(curlLines(second)[0]).toContain('$PENSTOCK_API_KEY');
    await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
      what: 'what was tracked before the stop',
    });
  });

  test('Ctrl-C stops everything in order and leaves nothing running', async () => {
    const env = await settings();
    // As a terminal does it: npm and all that it runs are one process group, which gets the signal at once.
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
      await waitUntil(() => text.includes('Penstock is ready'), { what: 'the greeting', deadline: 30_000 });
      expect(runningOn(env.DATA_DIR).length).toBeGreaterThan(4);
      process.kill(-npm.pid!, 'SIGINT');
      expect(await exit).toBe(0);
    } finally {
      if (npm.exitCode === null) process.kill(-npm.pid!, 'SIGKILL');
    }
    await waitUntil(() => runningOn(env.DATA_DIR).length === 0, {
      what: 'the end of all processes',
      deadline: 1000,
    });
    const stops = [...text.matchAll(/"process":"(\w+)".*"msg":"stopped"/g)].map((match) => match[1]);
    expect(stops).toEqual(['web', 'worker', 'board', 'start']);
  });

  test('a start that was killed does not stop the next one, and its processes end by themselves', async () => {
    const env = await settings();
    const first = await startAndWait(env);
    const key = KEY.exec(output(first))![0];
    expect(await track(env.PORT, key)).toBe(201);
    first.kill('SIGKILL');
    await first.exit;

    const second = await startAndWait(env);
    await waitUntil(async () => (await readBack(env.PORT, key)).users[0]?.external_id === 'ada', {
      what: 'what was accepted before the kill',
    });
    second.kill('SIGKILL');
    await second.exit;
    await waitUntil(() => runningOn(env.DATA_DIR).length === 0, { what: 'the end of what was left behind' });
  });

  test('a second start on the same data names the first and exits 1', async () => {
    const env = await settings();
    const first = await startAndWait(env);
    const second = begin({ ...(await settings()), DATA_DIR: env.DATA_DIR });
    expect(await second.exit).toMatchObject({ code: 1 });
    expect(output(second)).toContain(
      `another npm start (process ${first.pid}) is running on ${env.DATA_DIR}`,
    );
    expect((await fetch(`http://127.0.0.1:${env.PORT}/readyz`)).status).toBe(200);
  });

  test.each(['PORT', 'BOARD_PORT', 'WORKER_PORT'] as const)('a %s in use is said by name', async (name) => {
    const env = await settings();
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(Number(env[name]), '127.0.0.1', resolve));
    try {
      const start = begin(env);
      expect(await start.exit).toMatchObject({ code: 1 });
      expect(output(start)).toContain(`${name} ${env[name]} is in use on 127.0.0.1`);
      // A key that nobody would ever see is not made.
      expect(output(start)).not.toMatch(KEY);
      await waitUntil(() => runningOn(env.DATA_DIR).length === 0, {
        what: 'the end of all processes',
        deadline: 1000,
      });
    } finally {
      other.close();
    }
  });

  test('a process that is killed is started again', async () => {
    const env = await settings();
    const start = await startAndWait(env);
    const web = runningOn(env.DATA_DIR).find(({ command }) => command.includes('dist/src/web.js'))!;
    process.kill(web.pid, 'SIGKILL');
    await waitUntil(() => start.log.some((line) => line.name === 'web' && line.signal === 'SIGKILL'), {
      what: 'the log line about it',
    });
    await waitUntil(async () => (await fetch(`http://127.0.0.1:${env.PORT}/readyz`)).ok, {
      what: 'a new web',
    });
  });

  test('a wrong setting is said by name', async () => {
    const start = begin({ ...(await settings()), PORT: 'eighty' });
    expect(await start.exit).toMatchObject({ code: 1 });
    expect(output(start)).toContain('wrong setting: PORT must be integer (it is "eighty")');
  });
});

async function settings() {
  const [port, board, worker] = await Promise.all([freePort(), freePort(), freePort()]);
  return {
    DATA_DIR: temporaryFolder('penstock-start-'),
    PORT: String(port),
    BOARD_PORT: String(board),
    WORKER_PORT: String(worker),
  };
}

function begin(env: Record<string, string>): TestProcess {
  const start = startProcess('dist/src/start.js', env);
  started.push(start);
  return start;
}

async function startAndWait(env: Record<string, string>): Promise<TestProcess> {
  const start = begin(env);
  await waitUntil(() => output(start).includes('Penstock is ready'), {
    what: 'the greeting',
    deadline: 30_000,
  });
  return start;
}

/** Lines that are not log lines. */
function output({ log }: TestProcess): string {
  return log.map(({ text }) => text ?? '').join('\n');
}

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

async function post(port: string, path: string, key: string, body: object): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}${path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
}

async function track(port: string, key: string): Promise<number> {
  const attributes = [{ external_id: 'ada', first_name: 'Ada' }];
  return (await post(port, '/users/track', key, { attributes })).status;
}

async function readBack(port: string, key: string) {
  const response = await post(port, '/users/export/ids', key, { external_ids: ['ada'] });
  return (await response.json()) as { users: { external_id: string }[] };
}

/** The processes that name the folder in their command line or their environment. */
function runningOn(folder: string): { pid: number; command: string }[] {
  const read = (file: string) => {
    try {
      return readFileSync(file, 'utf8').replaceAll('\0', ' ').trim();
    } catch {
      return '';
    }
  };
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map((pid) => ({
      pid: Number(pid),
      command: read(`/proc/${pid}/cmdline`),
      env: read(`/proc/${pid}/environ`),
    }))
    .filter(({ command, env }) => `${command} ${env}`.includes(folder))
    .map(({ pid, command }) => ({ pid, command }));
}
