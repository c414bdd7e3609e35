import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { watchDependencies } from '../../src/processes/dependencies.ts';
import { Worker } from '../../src/queue/bullmq.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, connectWorker } from '../../src/queue/connection.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { NOT_RUNNING, runWorker } from '../../src/queue/open-worker.ts';
import { createSyncQueue } from '../../src/queue/syncs.ts';
import { openPool } from '../../src/store/database.ts';
import { createDatabase, startRedis, waitUntil } from '../setup/fixtures.ts';
import { type StoreProxy, startProxy } from '../setup/proxy.ts';
import { log } from './scene.ts';

/** The command as Redis clients send it. */
const INFO = '$4\r\ninfo\r\n';

let proxy: StoreProxy;
let url: string;
let redisUrl: string;
beforeAll(async () => {
  redisUrl = (await startRedis()).url;
  proxy = await startProxy(redisUrl);
  ({ url } = await createDatabase());
});
afterAll(() => proxy.comeBack());

async function connect(settings: Record<string, string> = {}) {
  const config = readConfig({ DATABASE_URL: url, REDIS_URL: proxy.url, LANES: '2', ...settings });
  const connection = connectProducer(config, url);
  await waitUntil(() => connection.ready(), { what: 'the queue' });
  return { config, connection };
}

const entry = () => ({ lane: 0, id: newId(), envelope: { requests: [], objects: [] } });

/** Waits until the work succeeds after the connection has come back. It may fail several times before. */
async function comesBack(work: () => Promise<unknown>, what: string): Promise<void> {
  const succeeded = () =>
    work().then(
      () => true,
      () => false,
    );
  await waitUntil(succeeded, { what, deadline: 5000 });
}

test.each(['cut', 'late'])(
  'G5: a producer whose first reply from Redis is %s adds objects once Redis answers again',
  async (how) => {
    const { config, connection } = await connect();
    if (how === 'cut') proxy.cutOnce(INFO);
    else proxy.holdBack(INFO);
    const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log });
    const syncs = createSyncQueue(connection, config.QUEUE_TIMEOUT_MS);
    await producer.add([entry()]).catch(() => {});
    await syncs.scheduled().catch(() => {});
    proxy.cutOnce(undefined);
    await proxy.comeBack();
    await comesBack(() => producer.add([entry()]), 'an add to a lane');
    await comesBack(() => syncs.add(newId()), 'an add to the queue of syncs');
    await producer.stop();
    await syncs.stop();
    await connection.stop();
  },
);

test('/readyz names the producer while its own connection to Redis is not open', async () => {
  const { config, connection } = await connect({ REDIS_WAIT_REPLICAS: '1' });
  const other = await startProxy(redisUrl);
  const own = connectProducer({ ...config, REDIS_URL: other.url }, url).redis!;
  const replication = { replicas: 1, open: () => own };
  const producer = createLaneProducer(
    { ...connection, replication },
    { timeout: config.QUEUE_TIMEOUT_MS, log },
  );
  const pool = openPool(url, 1);
  const pings = { producer: producer.ping };
  const dependencies = watchDependencies({ pool, connection, pings, log });
  const comesTo = (wanted: string[]) =>
    waitUntil(async () => (await dependencies.check()).join() === wanted.join(), {
      what: `missing: ${wanted}`,
    });
  await comesTo([]);
  other.leave();
  await comesTo(['producer']);
  await other.comeBack();
  await comesTo([]);
  await dependencies.stop();
  await producer.stop();
  await connection.stop();
  await pool.end();
});

test('a failed add logs its cause once, and the first add that succeeds afterwards is logged', async () => {
  const { config, connection } = await connect();
  const lines: [string, unknown][] = [];
  const noting = {
    ...log,
    warn: (fields: { err: Error }, text: string) => lines.push([text, fields.err.message]),
    info: (_fields: object, text: string) => lines.push([text, undefined]),
  } as unknown as typeof log;
  const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log: noting });
  proxy.leave();
  await waitUntil(() => !connection.ready(), { what: 'the loss of the connection' });
  for (let times = 0; times < 3; times++) await expect(producer.add([entry()])).rejects.toThrow();
  await proxy.comeBack();
  await comesBack(() => producer.add([entry()]), 'an add');
  await producer.add([entry()]);
  expect(lines).toEqual([
    ['objects could not be added to the queue; their requests get 503', 'the queue is not connected'],
    ['adding objects to the queue works again', undefined],
  ]);
  await producer.stop();
  await connection.stop();
});

test('a worker whose first reply from Redis is an error takes jobs once Redis answers again', async () => {
  const operator = new Redis(redisUrl);
  const config = readConfig({ DATABASE_URL: url, REDIS_URL: redisUrl });
  const connection = connectWorker(config, url);
  await waitUntil(() => connection.ready(), { what: 'the queue' });
  await operator.call('ACL', 'SETUSER', 'default', '-info');
  const taken: string[] = [];
  let opened = 0;
  const worker = runWorker(() => {
    opened++;
    const one = new Worker('jobs', async ({ id }) => void taken.push(id!), {
      ...connection.options,
      ...NOT_RUNNING,
    });
    return one.on('error', () => {});
  });
  await waitUntil(() => opened > 1, { what: 'a second worker' });
  await operator.call('ACL', 'SETUSER', 'default', '+info');
  const queue = openQueue(connection, 'jobs');
  await queue.add('job', {}, { jobId: 'first' });
  await waitUntil(() => taken.length > 0, { what: 'the job' });
  expect(taken).toEqual(['first']);
  await worker.close();
  await queue.close();
  operator.disconnect();
  await connection.stop();
});

test('a worker reads its lanes after its first reply from Redis was an error', async () => {
  const operator = new Redis(redisUrl);
  const connection = connectWorker(readConfig({ DATABASE_URL: url, REDIS_URL: redisUrl, LANES: '2' }), url);
  await waitUntil(() => connection.ready(), { what: 'the queue' });
  const { laneStore } = connection;
  await operator.call('ACL', 'SETUSER', 'default', '-info');
  await laneStore.head(1, 1).catch(() => {});
  await operator.call('ACL', 'SETUSER', 'default', '+info');
  await laneStore.limit(1);
  expect(await laneStore.isLimited(1)).toBe(true);
  expect(await laneStore.head(1, 1)).toEqual([]);
  operator.disconnect();
  await connection.stop();
});
