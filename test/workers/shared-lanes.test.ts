import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { Redis } from '../../src/queue/bullmq.ts';
import { connectProducer, connectWorker } from '../../src/queue/connection.ts';
import type { Fences } from '../../workers/fence/fences.ts';
import { type Lanes, startLanes } from '../../workers/lane/lanes.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';
import { silent } from './batch.ts';

const LANES = 64;

let redis: Redis;
let url: string;
const running: ReturnType<typeof startWorker>[] = [];
beforeAll(async () => {
  ({ url } = await startRedis());
  redis = new Redis(url);
});
afterAll(async () => {
  await Promise.all(running.map((worker) => worker.stop()));
  redis.disconnect();
});

/** The lanes of a process, of which nothing is ever asked of Postgres: none of them holds anything. */
function startWorker() {
  const databaseUrl = 'postgresql://nobody@127.0.0.1:1/nothing';
  const config = readConfig({ DATABASE_URL: databaseUrl, REDIS_URL: url, LANES: String(LANES) });
  const [connection, observer] = [connectWorker(config, databaseUrl), connectProducer(config, databaseUrl)];
  const coalescer = {
    apply: async () => {},
    beside: { apply: async () => false, isFree: () => true },
    follow() {},
    abandon() {},
  };
  const lanes: Lanes = startLanes({
    ...{
      id: newId(),
      connection,
      observer,
      coalescer,
      fences: {} as Fences,
      config,
      databaseUrl,
      log: silent,
    },
  });
  return {
    held: () => lanes.held().map(({ lane }) => lane),
    async stop() {
      await lanes.stop();
      await Promise.all([connection.stop(), observer.stop()]);
    },
  };
}

/** Connections that wait in Redis for a job. */
async function blocking(): Promise<number> {
  const list = (await redis.client('LIST')) as string;
  return list.split('\n').filter((line) => / cmd=bzpopmin /.test(line)).length;
}

const isEven = () => {
  const counts = running.map(({ held }) => held().length);
  const all = new Set(running.flatMap(({ held }) => held()));
  const [least, most] = [Math.floor(LANES / running.length), Math.ceil(LANES / running.length)];
  return all.size === LANES && counts.every((count) => count === least || count === most);
};

test('8 workers of 64 lanes hold 80 blocking connections at most, once each has its share', async () => {
  running.push(startWorker());
  await waitUntil(() => isEven(), { what: 'all lanes at the first worker' });
  for (let more = 1; more < 8; more++) running.push(startWorker());
  await waitUntil(() => isEven(), { what: 'even shares' });
  await waitUntil(async () => (await blocking()) === LANES, { what: 'a connection for each lane' });
  expect(await blocking()).toBeLessThanOrEqual(80);
});

test('a worker that stops leaves its lanes to the others, and no connection behind', async () => {
  for (const leaving of running.splice(0, 5)) await leaving.stop();
  await waitUntil(() => isEven(), { what: 'even shares of those that are left' });
  await waitUntil(async () => (await blocking()) === LANES, { what: 'a connection for each lane' });
});
