import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, connectWorker, type QueueConnection } from '../../src/queue/connection.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { laneName } from '../../src/queue/lanes.ts';
import { watchMemory } from '../../src/queue/redis.ts';
import { Accounts } from '../../workers/lane/accounts.ts';
import { type LaneContext, LaneWorker } from '../../workers/lane/lane-worker.ts';
import { startRedis, type TestRedis, waitUntil } from '../setup/fixtures.ts';
import { silentFences } from '../workers/no-fences.ts';

const silent = createLog('test', 'silent');
const nothing = { requests: [], objects: [] };

let server: TestRedis;
let operator: Redis;
let connection: QueueConnection;
beforeAll(async () => {
  server = await startRedis();
  operator = new Redis(server.url);
  connection = connectProducer(config(), '');
  await waitUntil(() => connection.ready(), { what: 'the connection' });
});
afterAll(async () => {
  operator.disconnect();
  await connection.stop();
});

function config() {
  return readConfig({ REDIS_URL: server.url, QUEUE_TIMEOUT_MS: '10000' });
}

test('G3: a lane of a Redis that came back empty is limited to one job before it gets one', async () => {
  const producer = createLaneProducer(connection, { timeout: 10_000, log: silent });
  const concurrency = () => operator.hget('{penstock}:lane-3:meta', 'concurrency');
  await producer.add([{ lane: 3, id: uuidv7(), envelope: nothing }]);
  expect(await concurrency()).toBe('1');
  await operator.flushall();
  await operator.script('FLUSH');
  await operator.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await waitUntil(() => connection.ready(), { what: 'the connection to be there again' });
  await waitUntil(
    async () => {
      await producer.add([{ lane: 3, id: uuidv7(), envelope: nothing }]);
      return true;
    },
    { what: 'an add' },
  );
  expect(await concurrency()).toBe('1');
  await producer.stop();
});

test('a lane that waits at a fence whose other entries are lost continues with the next jobs', async () => {
  const worker = connectWorker(config(), '');
  const queue = openQueue<unknown>(connection, laneName(0));
  let isWaiting = false;
  const applied: unknown[] = [];
  const scheduler: LaneContext['scheduler'] = {
    accounts: new Accounts(),
    forget() {},
    async step({ envelopes }) {
      // The other entries of the fence never arrive.
      isWaiting = envelopes().some(({ fence }) => fence && !fence.isOpen);
      if (isWaiting) return { kind: 'waits', milliseconds: 20 };
      applied.push(...envelopes().map(({ delivery }) => delivery!.envelope));
      return { kind: 'applied', done: envelopes().map(({ id }) => id), left: new Map() };
    },
  };
  const lane = new LaneWorker(0, {
    laneStore: worker.laneStore,
    scheduler,
    fences: silentFences(2),
    config: config(),
    log: silent,
  });
  const add = (data: object) => queue.add('envelope', data, { jobId: uuidv7(), attempts: 1 });
  await add({ ...nothing, fence: { id: uuidv7(), lanes: [0, 1] } });
  await waitUntil(() => isWaiting, { what: 'the lane at its fence' });
  await operator.flushall();
  await add(nothing);
  await waitUntil(() => applied.length > 0, { what: 'the next envelope' });
  expect(applied).toEqual([nothing]);
  await lane.stop();
  await queue.close();
  await worker.stop();
});

test('the memory watch reports how full Redis is, so that adds stop above the limit', async () => {
  const memory = watchMemory(connection);
  const used = Number(/^used_memory:(\d+)/m.exec(await operator.info('memory'))?.[1]);
  expect(memory.usedPercent()).toBe(0);
  await operator.config('SET', 'maxmemory', Math.round(used * 1.1));
  await waitUntil(() => memory.usedPercent() > 80, { what: 'a Redis that is nearly full' });
  await operator.config('SET', 'maxmemory', used * 10);
  await waitUntil(() => memory.usedPercent() < 20, { what: 'room' });
  await memory.stop();
});
