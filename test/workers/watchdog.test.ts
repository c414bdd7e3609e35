import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, connectWorker, type QueueConnection } from '../../src/queue/connection.ts';
import { laneName } from '../../src/queue/lanes.ts';
import { startTroubleProxy } from '../../tools/chaos/trouble-proxy.ts';
import { startWatchdog } from '../../workers/lane/watchdog.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';

/** Lock duration in milliseconds. */
const LOCK = 250;

let connection: QueueConnection;
let server: Awaited<ReturnType<typeof startRedis>>;
let network: Awaited<ReturnType<typeof startTroubleProxy>>;
beforeAll(async () => {
  server = await startRedis();
  network = await startTroubleProxy(server.url, Math.random);
  connection = connectProducer(readConfig({ REDIS_URL: network.url, QUEUE_TIMEOUT_MS: '5000' }), '');
  await waitUntil(connection.ready, { what: 'Redis' });
});
afterAll(() => connection.stop());

/** Starts a watchdog for a lane that has jobs but no worker. */
async function scene(lane: number, { jobs = 1, redis = undefined as QueueConnection['redis'] } = {}) {
  const counts = { opened: 0, stopped: 0, ended: 0 };
  const queue = openQueue(connection, laneName(lane));
  for (let one = 0; one < jobs; one++) await queue.add('envelope', {});
  const watchdog = startWatchdog({
    connection: { ...connection, redis },
    observer: connection,
    lockDuration: LOCK,
    log: createLog('test', 'silent'),
    exit: () => void counts.ended++,
  });
  const running = watchdog.watch(lane, () => {
    counts.opened++;
    return { name: 'lane', stop: async () => void counts.stopped++ };
  });
  const end = async () => {
    await watchdog.stop();
    await running.stop();
    await queue.close();
  };
  return { counts, queue, end };
}

test('a lane with waiting jobs and no active job is reopened once, then the process exits', async () => {
  const { counts, end } = await scene(0);
  await waitUntil(() => counts.opened === 2, { what: 'the lane to be reopened' });
  expect(counts).toEqual({ opened: 2, stopped: 1, ended: 0 });
  await waitUntil(() => counts.ended > 0, { what: 'the end' });
  expect(counts.opened).toBe(2);
  await end();
});

test.each([
  ['that is empty', 0, async () => {}],
  ['that was paused in the console', 1, (queue: ReturnType<typeof openQueue>) => queue.pause()],
] as const)('a lane %s is not reopened', async (_, jobs, prepare) => {
  const { counts, queue, end } = await scene(jobs + 1, { jobs });
  await prepare(queue);
  const started = performance.now();
  await waitUntil(() => performance.now() - started > 12 * LOCK, { what: 'the time of two warnings' });
  expect(counts).toEqual({ opened: 1, stopped: 0, ended: 0 });
  await end();
});

test('a lane is not reopened while the queue answers slowly, and is checked again afterwards', async () => {
  const { counts, end } = await scene(4);
  network.set({ delay: LOCK / 5 });
  const started = performance.now();
  await waitUntil(() => performance.now() - started > 12 * LOCK, { what: 'the time of two warnings' });
  expect(counts).toEqual({ opened: 1, stopped: 0, ended: 0 });
  network.set({});
  await waitUntil(() => counts.opened === 2, { what: 'the lane to be reopened' });
  await end();
});

test("the process does not exit while the lanes' own connection, even a new one, does not answer", async () => {
  const far = await startTroubleProxy(server.url, Math.random);
  const own = connectWorker(readConfig({ REDIS_URL: far.url }), '');
  await waitUntil(own.ready, { what: 'Redis' });
  far.set({ delay: LOCK });
  const { counts, end } = await scene(5, { redis: own.redis });
  await waitUntil(() => counts.opened === 2, { what: 'the lane to be reopened' });
  const started = performance.now();
  await waitUntil(() => performance.now() - started > 8 * LOCK, { what: 'the time of another warning' });
  expect(counts.ended).toBe(0);
  far.set({});
  await waitUntil(() => counts.ended > 0, { what: 'the end' });
  await end();
  await own.stop();
});

test('a lane that makes progress is not reopened, even with many waiting jobs', async () => {
  const { counts, queue, end } = await scene(3, { jobs: 30 });
  const started = performance.now();
  await waitUntil(
    async () => {
      const [next] = await queue.getWaiting(0, 0);
      await next?.remove();
      return performance.now() - started > 12 * LOCK;
    },
    { what: 'the time of two warnings' },
  );
  expect(counts.ended).toBe(0);
  await end();
});
