import { beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { countProcessed, type Fleet, startFleet, statusOf } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { startRedis, type TestRedis, waitUntil } from '../setup/fixtures.ts';

test.each([
  ['', '', 'postgres'],
  ['', 'redis://127.0.0.1', 'redis'],
  ['redis', 'redis://127.0.0.1', 'redis'],
  ['postgres', 'redis://127.0.0.1', 'postgres'],
  ['postgres', '', 'postgres'],
])('QUEUE=%s with REDIS_URL=%s: the queue is in %s', (QUEUE, REDIS_URL, kind) => {
  expect(readConfig({ QUEUE, REDIS_URL }).QUEUE).toBe(kind);
});

test('QUEUE=redis without REDIS_URL is refused, and so is any other name', () => {
  expect(() => readConfig({ QUEUE: 'redis' })).toThrow('REDIS_URL');
  expect(() => readConfig({ QUEUE: 'memory' })).toThrow('QUEUE must be redis or postgres');
});

describe('QUEUE=postgres with REDIS_URL', () => {
  /** Requests within a window so long that no token returns during the test. */
  const LIMIT = 40;
  let fleet: Fleet;
  let redis: TestRedis;

  beforeAll(async () => {
    redis = await startRedis();
    fleet = await startFleet('postgres', {
      edges: 2,
      workers: 0,
      env: { REDIS_URL: redis.url, QUEUE: 'postgres', QUEUE_TIMEOUT_MS: '10000' },
    });
    await fleet.pool.query(
      `insert into rate_limits (workspace_id, bucket, requests, window_seconds)
       values ($1, 'users.track', $2, 86400)`,
      [fleet.workspace.id, LIMIT],
    );
    return fleet.stop;
  });

  /** Sends one event, to each web process in turn. */
  const track = (number: number) =>
    send(fleet.edges[number % 2]!.port, {
      path: '/users/track',
      key: fleet.workspace.key,
      json: { events: [{ external_id: `user ${number}`, name: 'seen', time: '2026-01-02T03:04:05Z' }] },
    });

  test('G5: all web processes together allow as many requests as one limit', async () => {
    const statuses: number[] = [];
    // A few at a time: on a busy machine, more would wait for the queue longer than web allows.
    while (statuses.length < LIMIT + 20) {
      const answers = await Promise.all(Array.from({ length: 10 }, (_, n) => track(statuses.length + n)));
      statuses.push(...answers.map(({ status }) => status));
    }
    expect(statuses.filter((status) => status === 201)).toHaveLength(LIMIT);
    expect(statuses.filter((status) => status === 429)).toHaveLength(20);
  });

  test('G1: a Redis that comes back empty costs no accepted object', async () => {
    const client = new Redis(redis.url);
    const keys = await client.keys('*');
    await client.quit();
    expect(keys).toEqual([`{penstock}:limit:${fleet.workspace.id}:users.track`]);

    await redis.kill();
    await waitUntil(async () => (await statusOf(fleet.edges[0]!.port, '/readyz')) === 503, {
      what: 'the edge to be without Redis',
    });
    expect(await (await fetch(`http://127.0.0.1:${fleet.edges[0]!.port}/readyz`)).json()).toMatchObject({
      missing: ['redis'],
    });
    expect(await track(0)).toMatchObject({ status: 503 });

    // In a new folder, so that it starts empty.
    await startRedis({ port: redis.port });
    await waitUntil(async () => (await track(1000)).status === 201, { what: 'work to resume' });
    await fleet.startWorker();
    await waitUntil(async () => (await countProcessed(fleet)) >= LIMIT + 1, { what: 'all to be applied' });
    const { rows } = await fleet.pool.query(
      'select count(*)::integer as events, count(distinct profile_id)::integer as users from events',
    );
    expect(rows).toEqual([{ events: LIMIT + 1, users: LIMIT + 1 }]);
  });
});
