import { expect, test } from 'vitest';
import { createBareDatabase, createDatabase, startRedis, waitUntil } from './setup/fixtures.ts';
import { leasePort } from './setup/ports.ts';
import { startProcess } from './setup/processes.ts';
import { startProxy } from './setup/proxy.ts';

/** Each process of the Procfile, and the setting of the port of its /readyz. */
const processes = [
  ['web', 'dist/src/web.js', 'PORT'],
  ['worker', 'dist/workers/worker.js', 'WORKER_PORT'],
  ['sync', 'dist/workers/sync.js', 'SYNC_PORT'],
  ['board', 'dist/src/board.js', 'BOARD_PORT'],
] as const;

type Env = Record<string, string>;

/** Starts a process without some of its stores. */
async function startWithout(file: string, portSetting: string, env: Env) {
  const port = await leasePort();
  const started = startProcess(file, { ...env, [portSetting]: String(port), BOARD_PASSWORD: 'own' });
  const exit = started.exit.then(({ code, signal }) => {
    throw new Error(`it ended with ${code ?? signal}: ${JSON.stringify(started.log.slice(-3))}`);
  });
  exit.catch(() => {});
  const lines = (pattern: RegExp) => started.log.filter(({ msg }) => pattern.test(String(msg)));
  return {
    ...started,
    lines,
    /**
     * Resolves when /readyz answers with this status and these missing stores; rejects when the process ends.
     */
    says: (status: number, missing: string[]) =>
      Promise.race([
        exit,
        waitUntil(
          async () => {
            const response = await fetch(`http://127.0.0.1:${port}/readyz`);
            const body = (await response.json()) as { missing: string[] };
            return response.status === status && JSON.stringify(body.missing) === JSON.stringify(missing);
          },
          { what: `/readyz to answer ${status} ${missing}` },
        ),
      ]),
    refusals: () =>
      started.log.filter((line) => Number(line.level) > 20 && JSON.stringify(line).includes('ECONNREFUSED')),
    hears: (pattern: RegExp) =>
      Promise.race([exit, waitUntil(() => lines(pattern).length > 0, { what: String(pattern) })]),
  };
}

const goesOn = 'this process is waiting and resumes by itself when';
const sentences = {
  postgres: new RegExp(`^Postgres does not answer \\(connection refused\\); ${goesOn} it does$`),
  migrations: new RegExp(
    `^Postgres does not have the tables of this release: run the release step \\(node dist/src/release.js, or penstock migrate\\); ${goesOn} that is done$`,
  ),
  redis: new RegExp(`^Redis does not answer \\(connection refused\\); ${goesOn} it does$`),
};

test('each process logs one line when a store goes missing and one when the store is back', async () => {
  const { url } = await createBareDatabase();
  const proxy = await startProxy(url);
  proxy.leave();
  const redisPort = await leasePort();
  const env = { DATABASE_URL: proxy.url, REDIS_URL: `redis://127.0.0.1:${redisPort}` };
  const all = await Promise.all(
    processes.map(([, file, portSetting]) => startWithout(file, portSetting, env)),
  );
  const hear = (pattern: RegExp) => Promise.all(all.map((process) => process.hears(pattern)));
  const say = (status: number, missing: string[]) =>
    Promise.all(all.map((process) => process.says(status, missing)));
  await hear(sentences.postgres);
  await hear(sentences.redis);
  await say(503, ['postgres', 'redis']);

  await proxy.comeBack();
  await hear(/^Postgres answered$/);
  await hear(sentences.migrations);
  await say(503, ['migrations', 'redis']);

  expect((await startProcess('dist/src/release.js', { DATABASE_URL: url }).exit).code).toBe(0);
  await hear(/^the tables of this release were created$/);
  await say(503, ['redis']);

  await startRedis({ port: redisPort });
  await hear(/^Redis answered$/);
  await say(200, []);
  await hear(/^ready$/);
  for (const { lines, refusals } of all) {
    expect(lines(/^(Postgres|Redis) (does not answer|answered)/)).toHaveLength(4);
    // Errors of libraries are not logged in addition.
    expect(refusals()).toEqual([]);
  }

  const before = all.map(({ lines }) => lines(sentences.postgres).length);
  proxy.leave();
  await waitUntil(() => all.every(({ lines }, at) => lines(sentences.postgres).length > before[at]!), {
    what: 'Postgres to be missed',
  });
  await proxy.comeBack();
  await waitUntil(() => all.every(({ lines }) => lines(/^Postgres answered$/).length > 1), {
    what: 'Postgres to be greeted',
  });
  await say(200, []);
});

test.concurrent.each(processes)(
  '%s that waits for Postgres exits with 0 when it is asked to stop',
  async (_, file, portSetting) => {
    const proxy = await startProxy((await createDatabase()).url);
    proxy.leave();
    const process = await startWithout(file, portSetting, { DATABASE_URL: proxy.url });
    await process.hears(sentences.postgres);
    process.kill('SIGTERM');
    expect(await process.exit).toEqual({ code: 0, signal: null });
  },
);

test('the queue in Postgres is missing whenever Postgres is', async () => {
  const [, file, portSetting] = processes[0];
  const proxy = await startProxy((await createDatabase()).url);
  proxy.leave();
  const process = await startWithout(file, portSetting, { DATABASE_URL: proxy.url });
  await process.says(503, ['postgres', 'queue']);
  await proxy.comeBack();
  await process.says(200, []);
});
