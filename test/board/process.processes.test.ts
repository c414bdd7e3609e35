import { once } from 'node:events';
import { createServer } from 'node:net';
import { describe, expect, test } from 'vitest';
import { createDatabase, startRedis, waitUntil } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess } from '../setup/processes.ts';
import { createVisitor } from './browser-session.ts';

/** Starts the compiled process and waits until it is ready. */
async function startBoardProcess(env: Record<string, string> = {}) {
  const { url: DATABASE_URL } = await createDatabase();
  const port = await leasePort();
  const board = startProcess('dist/src/board.js', { DATABASE_URL, BOARD_PORT: String(port), ...env });
  const url = `http://127.0.0.1:${port}`;
  await waitUntil(async () => (await fetch(`${url}/healthz`)).ok, { what: 'the dashboard' });
  return { ...board, url };
}

describe('the process board', () => {
  test('a random password is printed once at any log level, and a configured one never', async () => {
    const board = await startBoardProcess({ LOG_LEVEL: 'silent' });
    const line = await waitUntil(() => board.log.find(({ text }) => text), {
      what: 'the line with the password',
    });
    const [, user, password] = /user: (\S+) {2}password: (\S+)/.exec(String(line.text))!;
    expect(line.text).toContain(board.url);
    expect((await createVisitor(board).signIn(user, password)).status).toBe(303);
    expect(board.log).toHaveLength(1);

    const own = await startBoardProcess({ BOARD_USER: 'me', BOARD_PASSWORD: 'tell nobody' });
    expect((await createVisitor(own).signIn('me', 'tell nobody')).status).toBe(303);
    expect(JSON.stringify(own.log)).not.toContain('tell nobody');
  });

  test('with METRICS_TOKEN, /metrics needs the token', async () => {
    const METRICS_TOKEN = 'a-token-for-the-metrics-alone';
    const board = await startBoardProcess({ METRICS_TOKEN });
    const send = (authorization?: string) =>
      fetch(`${board.url}/metrics`, { headers: authorization === undefined ? {} : { authorization } });
    for (const wrong of [undefined, '', METRICS_TOKEN, `Bearer ${METRICS_TOKEN}x`])
      expect((await send(wrong)).status).toBe(401);
    const answer = await send(`Bearer ${METRICS_TOKEN}`);
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain('nodejs_eventloop_lag_max_seconds');
  });

  test('the console listens on loopback only', async () => {
    const board = await startBoardProcess();
    const { port } = new URL(board.url);
    await expect(fetch(`http://[::1]:${port}/healthz`)).rejects.toThrow();
    expect(board.log.find(({ msg }) => msg === 'ready')).toMatchObject({ url: `http://127.0.0.1:${port}` });
  });

  test('the console starts without the queue, reports it, and shows it when it is back', async () => {
    const port = await leasePort();
    const board = await startBoardProcess({ REDIS_URL: `redis://127.0.0.1:${port}`, BOARD_PASSWORD: 'own' });
    const visitor = createVisitor(board);
    await visitor.signIn('admin', 'own');
    const answer = await visitor.get('/queues/api/queues');
    expect([answer.status, await answer.json()]).toEqual([503, { message: 'The queue does not answer.' }]);
    const redis = await startRedis({ port });
    await waitUntil(async () => (await visitor.get('/queues/api/queues')).ok, { what: 'the queue' });
    await redis.stop();
    await waitUntil(async () => (await visitor.get('/queues/api/queues')).status === 503, {
      what: 'the queue to be missed',
    });
  });

  test('the console exits with 0 on SIGTERM, even with an open page', async () => {
    const board = await startBoardProcess();
    const visitor = createVisitor(board);
    await visitor.get('/sign-in');
    const started = Date.now();
    board.kill('SIGTERM');
    expect(await board.exit).toEqual({ code: 0, signal: null });
    expect(Date.now() - started).toBeLessThan(4000);
  });

  test('the error names the port if it is in use', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const { url: DATABASE_URL } = await createDatabase();
    const board = startProcess('dist/src/board.js', { DATABASE_URL, BOARD_PORT: String(port) });
    expect(await board.exit).toEqual({ code: 1, signal: null });
    expect(board.log).toContainEqual({
      text: `board: BOARD_PORT ${port} is in use on 127.0.0.1; stop the program that uses it, or set BOARD_PORT to another port`,
    });
    server.close();
  });

  test('the error names the missing setting if no database is configured', async () => {
    const board = startProcess('dist/src/board.js', { DATA_DIR: '/nowhere' });
    expect((await board.exit).code).toBe(1);
    expect(board.log[0]!.text).toMatch(/^board: DATABASE_URL is empty and no embedded Postgres/);
  });
});
