import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { linkSignals } from '../src/platform/time-limit.ts';
import { type Backend, eitherBackend, type Fleet, type Member, startFleet } from './guarantees/fleet.ts';
import { createBareDatabase, startRedis, waitUntil } from './setup/fixtures.ts';
import { leasePort } from './setup/ports.ts';
import { startProcess } from './setup/processes.ts';
import { type StoreProxy, startProxy } from './setup/proxy.ts';

/** Milliseconds: one second for the dependencies, and one for a busy machine. */
const DEADLINE = 2000;

const READY = { status: 200, body: { message: 'ready', missing: [] } };
const notReady = (...missing: string[]) => ({ status: 503, body: { message: 'not ready', missing } });

/** Returns the response of /readyz; fails when it takes longer than the deadline. */
async function request(port: number) {
  const signal = linkSignals({ milliseconds: DEADLINE }).signal;
  const response = await fetch(`http://127.0.0.1:${port}/readyz`, { signal });
  return { status: response.status, body: await response.json() };
}

/** Waits until /readyz answers so, because the process may need a moment to notice the change. */
const comesTo = (port: number, answer: object) =>
  expect.poll(() => request(port), { timeout: 20_000 }).toMatchObject(answer);

const missingWithoutPostgres: Record<Backend, string[]> = {
  redis: ['postgres'],
  postgres: ['postgres', 'queue'],
};

describe.each(eitherBackend)('/readyz, with the queue in %s', (backend) => {
  let fleet: Fleet;
  let postgres: StoreProxy;
  let redis: StoreProxy | undefined;
  let processes: Member[];
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 0, workers: 0 });
    fleet.env.MAX_ENVELOPE_AGE_MS = '2000';
    // A batch that takes long, as in a test below, must not count as a standstill.
    Object.assign(fleet.env, { MAX_STANDSTILL_MS: '1000', READY_AT_STANDSTILL: 'no' });
    postgres = await startProxy(fleet.env.DATABASE_URL!);
    fleet.env.DATABASE_URL = postgres.url;
    if (fleet.redis) {
      redis = await startProxy(fleet.redis.url);
      fleet.env.REDIS_URL = redis.url;
    }
    processes = await Promise.all([fleet.startEdge(), fleet.startWorker()]);
    return fleet.stop;
  });

  const send = () =>
    fetch(`http://127.0.0.1:${processes[0]!.port}/users/track`, {
      method: 'POST',
      headers: { authorization: `Bearer ${fleet.workspace.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ attributes: [{ external_id: 'held', seen: true }] }),
    });
  const everyOneComesTo = (answer: object) => Promise.all(processes.map(({ port }) => comesTo(port, answer)));

  test.each(['leave', 'standStill'] as const)(
    'web and worker name Postgres as missing only while it is away (%s)',
    async (how) => {
      await everyOneComesTo(READY);
      postgres[how]();
      await everyOneComesTo(notReady(...missingWithoutPostgres[backend]));
      await postgres.comeBack();
      await everyOneComesTo(READY);
    },
  );

  if (backend === 'redis') {
    test.each(['leave', 'standStill'] as const)(
      'web and worker name Redis as missing only while it is away (%s)',
      async (how) => {
        await everyOneComesTo(READY);
        redis![how]();
        await everyOneComesTo(notReady('redis'));
        await redis!.comeBack();
        await everyOneComesTo(READY);
      },
    );
  }

  test('G8: an envelope that waits too long is reported by both, and the worker is not ready', async () => {
    await everyOneComesTo(READY);
    const [web, worker] = processes.map(({ port }) => port);
    const { workspace } = fleet;
    await send();
    const metricOf = async (port: number, name: string) => {
      const metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      const values = metrics.matchAll(new RegExp(`^penstock_queue_${name}\\{.*\\} (\\d+)$`, 'gm'));
      return [...values].map(([, value]) => Number(value));
    };
    const held = () =>
      fleet.pool.query("select 1 from profiles where workspace_id = $1 and external_id = 'held'", [
        workspace.id,
      ]);
    await waitUntil(async () => (await held()).rowCount === 1, { what: 'the user' });
    // The first envelope leaves the lane after its commit. Until then, it could be the oldest.
    await waitUntil(async () => Math.max(...(await metricOf(web!, 'depth'))) === 0, {
      what: 'an empty lane',
    });
    const blocker = await fleet.pool.connect();
    onTestFinished(() => blocker.release(true));
    await blocker.query('begin');
    await blocker.query("select from profiles where workspace_id = $1 and external_id = 'held' for update", [
      workspace.id,
    ]);
    await send();
    const stuck = [{ lane: expect.any(Number), envelope: expect.any(String), seconds: expect.any(Number) }];
    await comesTo(worker!, { status: 503, body: { message: 'not ready', missing: [], stuck } });
    await comesTo(web!, { status: 200, body: { message: 'ready', stuck } });
    const lines = () =>
      processes.map(({ log }) =>
        log.filter(({ msg }) => /^oldest job of a lane exceeded MAX_ENVELOPE_AGE_MS/.test(String(msg))),
      );
    // Lines are buffered before they are written.
    await waitUntil(() => lines().every(({ length }) => length > 0), { what: 'a line of each' });
    // Both processes poll every two seconds; several polls of one envelope are one line.
    await waitUntil(async () => Math.max(...(await metricOf(worker!, 'oldest_seconds'))) > 9, {
      what: 'several looks',
    });
    await blocker.query('rollback');
    await everyOneComesTo(READY);
    expect(lines()).toEqual(Array(2).fill([expect.objectContaining({ level: 50, ...stuck[0] })]));
  });

  test.each(['/healthz', '/metrics'])('%s answers in time while all stores are away', async (path) => {
    for (const store of [postgres, redis]) store?.standStill();
    for (const { port } of processes) {
      const signal = linkSignals({ milliseconds: DEADLINE }).signal;
      expect((await fetch(`http://127.0.0.1:${port}${path}`, { signal })).status).toBe(200);
    }
    for (const store of [postgres, redis]) await store?.comeBack();
  });

  test("a worker's pages are read-only: 405 with Allow, and any other path is 404", async () => {
    const origin = `http://127.0.0.1:${processes[1]!.port}`;
    for (const path of ['/healthz', '/readyz', '/metrics']) {
      const { status, headers } = await fetch(origin + path, { method: 'POST' });
      expect([status, headers.get('allow')]).toEqual([405, 'GET, HEAD']);
    }
    expect((await fetch(`${origin}/constructor`)).status).toBe(404);
  });

  test('web reports and logs a standstill until a worker takes the waiting jobs', async () => {
    const [web, worker] = processes as [Member, Member];
    await fleet.end(worker);
    await send();
    const stands = { message: 'not ready', missing: [], standstill_seconds: expect.any(Number) };
    await comesTo(web.port, { status: 503, body: stands });
    const line = () => web.log.find(({ msg }) => /^standstill: jobs are waiting/.test(String(msg)));
    await waitUntil(line, { what: 'a line' });
    expect(line()).toMatchObject({ level: 50 });
    const metrics = await (await fetch(`http://127.0.0.1:${web.port}/metrics`)).text();
    expect(metrics).toMatch(/^penstock_queue_standstill_seconds [1-9]/m);
    processes[1] = await fleet.startWorker();
    await comesTo(web.port, READY);
  });
});

test.each([
  ['redis', ['migrations']],
  ['postgres', ['migrations', 'queue']],
])('a web process on a database without tables is not ready; queue in %s', async (backend, missing) => {
  const { url: DATABASE_URL } = await createBareDatabase();
  const PORT = String(await leasePort());
  const redis = backend === 'redis' ? { REDIS_URL: (await startRedis()).url } : {};
  const web = startProcess('dist/src/web.js', { DATABASE_URL, PORT, ...redis });
  await waitUntil(() => request(Number(PORT)), { what: 'an answer' });
  await comesTo(Number(PORT), notReady(...missing));
  web.kill('SIGKILL');
  await web.exit;
});
