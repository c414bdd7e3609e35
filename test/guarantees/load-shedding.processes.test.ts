import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createAccess } from '../setup/access.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { backends, type Fleet, startFleet } from './fleet.ts';

const time = '2026-01-31T12:00:00Z';

/** Milliseconds that a rejection may take. */
const AT_ONCE = 50;

const operations = allOperations('service_id');
const byId = (id: string) => operations.find((operation) => operation.id === id)!;

/** Returns status and body of /readyz. */
async function readiness({ edges }: Fleet) {
  const response = await fetch(`http://127.0.0.1:${edges[0]!.port}/readyz`);
  // biome-ignore lint/suspicious/noExplicitAny: the assertions check its shape
  return { status: response.status, body: (await response.json()) as any };
}

async function gauge({ edges }: Fleet, name: string, mark?: string): Promise<number> {
  const page = await (await fetch(`http://127.0.0.1:${edges[0]!.port}/metrics`)).text();
  const line = page
    .split('\n')
    .find((candidate) => candidate.startsWith(mark ? `${name}{mark="${mark}"}` : `${name} `));
  return Number(line?.split(' ').at(-1) ?? Number.NaN);
}

/** @param texts properties of 250 characters in each event */
function track({ edges, workspace }: Fleet, count = 1, texts = 0) {
  const text = 'x'.repeat(250);
  const properties = Object.fromEntries(Array.from({ length: texts }, (_, index) => [`p${index}`, text]));
  const event = { external_id: 'ada', name: 'seen', time, properties };
  return send(edges[0]!.port, {
    path: '/users/track',
    key: workspace.key,
    json: { events: Array(count).fill(event) },
  });
}

/** The expected rejection. */
const refused = { status: 503, body: { message: 'Service Unavailable' } };

/**
 * Returns the process's own median time for its last rejections in milliseconds, which tolerates a busy
 * machine.
 */
async function usualRefusal(fleet: Fleet): Promise<number> {
  const before = fleet.edges[0]!.log.length;
  for (let one = 0; one < 11; one++) {
    const answer = await track(fleet);
    expect(answer).toMatchObject(refused);
    expect(answer.headers.get('retry-after')).toBe('1');
  }
  const lines = () => fleet.edges[0]!.log.slice(before).filter(({ status }) => status === 503);
  await waitUntil(() => lines().length >= 11, { what: 'the lines of the log' });
  const took = lines().map(({ ms }) => ms as number);
  return took.sort((a, b) => a - b)[5]!;
}

describe.each(backends)('too many jobs wait; queue on %s', (backend) => {
  const MARK = 10;
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet(backend, {
      edges: 1,
      workers: 0,
      env: { MAX_WAITING_ENVELOPES: String(MARK), LOG_LEVEL: 'info', LANES: '1' },
    });
    await liftLimits(fleet.pool, fleet.workspace.id);
  });
  afterAll(() => fleet.stop());

  test('writes are rejected at once with 503, reads are not, and writes resume by themselves', async () => {
    expect((await readiness(fleet)).body.high_water.queue_depth).toEqual({
      value: 0,
      mark: MARK,
      unit: 'jobs',
      over: false,
    });
    // Each of another workspace: one alone would be refused for its share first.
    const fill = async () =>
      track({ ...fleet, workspace: await createWorkspace(fleet.pool, crypto.randomUUID()) });
    await waitUntil(async () => (await fill()).status === 503, { what: 'a full queue' });
    expect(await usualRefusal(fleet)).toBeLessThan(AT_ONCE);

    const { status, body } = await readiness(fleet);
    expect(status).toBe(503);
    expect(body.missing).toEqual([]);
    expect(body.overload).toMatch(/^queue_depth is \d+ jobs, over its mark of 10$/);
    expect(body.high_water.queue_depth).toMatchObject({ mark: MARK, over: true });
    expect(body.high_water.queue_depth.value).toBeGreaterThan(MARK);
    expect(await gauge(fleet, 'penstock_web_queue_depth_jobs')).toBeGreaterThan(MARK);
    expect(await gauge(fleet, 'penstock_web_queue_depth_limit_jobs')).toBe(MARK);
    expect(await gauge(fleet, 'penstock_high_water_over', 'queue_depth')).toBe(1);

    const access = createAccess(fleet.pool);
    for (const id of ['users.export.ids', 'subscription.status.get', 'scim.users.create']) {
      const operation = byId(id);
      const request = await access.example(operation, fleet.workspace);
      const admitted = await access.admit(operation, fleet.workspace);
      const answer = await send(fleet.edges[0]!.port, { ...request, ...admitted });
      expect([id, answer.status]).toEqual([id, expect.toBeOneOf([200, 201])]);
    }
    expect((await fetch(`http://127.0.0.1:${fleet.edges[0]!.port}/healthz`)).status).toBe(200);

    await fleet.startWorker();
    await waitUntil(async () => (await track(fleet)).status === 201, { what: 'an answer of 201' });
    expect(await gauge(fleet, 'penstock_high_water_over', 'queue_depth')).toBe(0);
  });
});

describe.each(backends)('one workspace sends more than workers apply; queue on %s', (backend) => {
  const MARK = 300;
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet(backend, {
      edges: 2,
      workers: 0,
      env: { MAX_WAITING_ENVELOPES: String(MARK), LANES: '4' },
    });
  });
  afterAll(() => fleet.stop());

  test('G8: it fills half of the queue and gets 503 from each web process, and others are accepted', async () => {
    const { pool, workspace: noisy, edges } = fleet;
    const quiet = await createWorkspace(pool, 'quiet');
    for (const { id } of [noisy, quiet]) await liftLimits(pool, id);
    const sendAs = (key: string, edge: number, users: string[]) =>
      send(edges[edge]!.port, {
        ...{ path: '/users/track', key },
        json: { events: users.map((external_id) => ({ external_id, name: 'seen', time })) },
      });
    // In every lane, so that few requests are many jobs.
    const users = Array.from({ length: 16 }, (_, number) => `noisy-${number}`);
    const sendNoisily = (edge: number) => sendAs(noisy.key, edge, users);
    const refusedBy = async (edge: number) => (await sendNoisily(edge)).status === 503;
    await waitUntil(() => refusedBy(0), { what: 'a refusal', deadline: 60_000 });
    await waitUntil(() => refusedBy(1), { what: 'a refusal of the other web process' });
    for (let round = 0; round < 5; round++)
      for (const edge of [0, 1]) {
        const answer = await sendNoisily(edge);
        expect(answer).toMatchObject({ ...refused, body: { ...refused.body, code: 'workspace_over_share' } });
        expect(answer.headers.get('retry-after')).toBe('1');
        expect((await sendAs(quiet.key, edge, [`quiet-${round}`])).status).toBe(201);
      }
    const { status, body } = await readiness(fleet);
    expect([status, body.overload]).toEqual([200, undefined]);
    expect(body.high_water.queue_depth.value).toBeGreaterThan(MARK / 2);
    expect(await gauge(fleet, 'penstock_web_largest_backlog_ratio')).toBeGreaterThan(1);
    await fleet.startWorker();
    await waitUntil(async () => (await sendNoisily(0)).status === 201, { what: 'an answer of 201' });
  });
});

describe('Redis has reached its share of maxmemory', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet('redis', {
      edges: 1,
      workers: 0,
      env: { MAX_REDIS_MEMORY_PERCENT: '60', LOG_LEVEL: 'info' },
    });
    await liftLimits(fleet.pool, fleet.workspace.id);
  });
  afterAll(() => fleet.stop());

  test('writes are rejected with 503 before Redis is full, and resume once workers free memory', async () => {
    const redis = new Redis(fleet.redis!.url);
    const used = Number(/used_memory:(\d+)/.exec(await redis.info('memory'))![1]);
    const most = used + 24 * 1024 * 1024;
    await redis.config('SET', 'maxmemory', String(most));
    // By other data: a workspace alone would be refused for its share first.
    await redis.setrange('other', Math.floor(0.62 * most - used), 'x');
    await waitUntil(async () => (await track(fleet, 75, 10)).status === 503, {
      what: 'a Redis with its share used',
    });
    expect(await usualRefusal(fleet)).toBeLessThan(AT_ONCE);
    expect(Number(/used_memory:(\d+)/.exec(await redis.info('memory'))![1])).toBeLessThan(most);
    const { status, body } = await readiness(fleet);
    expect(status).toBe(503);
    expect(body.overload).toMatch(/^redis_memory is [\d.]+ percent, over its mark of 60$/);
    // Redis frees memory of closed connections meanwhile; the limit stays exceeded until usage falls to nine
    // tenths of it.
    expect(await gauge(fleet, 'penstock_web_redis_memory_ratio')).toBeGreaterThan(0.9 * 0.6);
    expect(await gauge(fleet, 'penstock_high_water_over', 'redis_memory')).toBe(1);
    expect(await gauge(fleet, 'penstock_web_redis_memory_limit_ratio')).toBe(0.6);

    await redis.del('other');
    await fleet.startWorker();
    await waitUntil(async () => (await track(fleet)).status === 201, { what: 'an answer of 201' });
    expect((await readiness(fleet)).body.high_water.redis_memory.over).toBe(false);
    redis.disconnect();
  });
});

describe('a web process has no time for its work', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet('redis', {
      edges: 1,
      workers: 1,
      env: { MAX_EVENT_LOOP_LAG_MS: '500', LOG_LEVEL: 'info' },
    });
    await liftLimits(fleet.pool, fleet.workspace.id);
  });
  afterAll(() => fleet.stop());

  test('requests that waited for a blocked event loop get 503, and soon afterwards 201 again', async () => {
    expect((await track(fleet)).status).toBe(201);
    const web = fleet.edges[0]!;
    const refusal = await waitUntil(
      async () => {
        web.kill('SIGSTOP');
        await sleep(1500);
        const answer = track(fleet);
        web.kill('SIGCONT');
        const { status, headers } = await answer;
        return status === 503 ? headers : undefined;
      },
      { what: 'a refusal after a block' },
    );
    expect(refusal.get('retry-after')).toBe('1');
    await waitUntil(() => web.log.some(({ error }) => /^event_loop_lag is/.test(String(error))), {
      what: 'the reason in the log',
    });
    await waitUntil(async () => (await track(fleet)).status === 201, { what: 'an answer of 201' });
    expect(await gauge(fleet, 'penstock_web_event_loop_lag_limit_seconds')).toBe(0.5);
  });
});
