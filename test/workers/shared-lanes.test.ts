import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { connectProducer, connectWorker } from '../../src/queue/connection.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { Accounts } from '../../workers/lane/accounts.ts';
import { type Lanes, type LanesOptions, startLanes } from '../../workers/lane/lanes.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';
import { silent } from './batch.ts';
import { silentFences } from './no-fences.ts';

/** Layouts of up to 128 lanes, on up to 16 shards. */
const shapes = [
  { SHARDS: 1, LANES: 64 },
  { SHARDS: 16, LANES: 4 },
  { SHARDS: 16, LANES: 8 },
];

let shape = shapes[0]!;
const allLanes = () => shape.SHARDS * shape.LANES;

let redis: Redis;
let url: string;
const running: ReturnType<typeof startWorker>[] = [];
beforeAll(async () => {
  ({ url } = await startRedis());
  redis = new Redis(url);
});
afterAll(async () => {
  redis.disconnect();
});

/** Starts the lanes of a process. They never query Postgres because all lanes are empty. */
function startWorker() {
  const databaseUrl = 'postgresql://nobody@127.0.0.1:1/nothing';
  const config = readConfig({
    DATABASE_URL: databaseUrl,
    REDIS_URL: url,
    LANES: String(shape.LANES),
    SHARDS: String(shape.SHARDS),
  });
  const [connection, observer] = [connectWorker(config, databaseUrl), connectProducer(config, databaseUrl)];
  const scheduler: LanesOptions['scheduler'] = {
    accounts: new Accounts(),
    forget() {},
    step: async () => ({ kind: 'abandoned' }),
    abandon() {},
  };
  const lanes: Lanes = startLanes({
    ...{
      id: newId(),
      connection,
      observer,
      scheduler,
      fences: silentFences(),
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

/** Returns the number of connections that wait for a job in Redis. */
async function blocking(): Promise<number> {
  const list = (await redis.client('LIST')) as string;
  return list.split('\n').filter((line) => / cmd=bzpopmin /.test(line)).length;
}

const isEven = () => {
  const counts = running.map(({ held }) => held().length);
  const all = new Set(running.flatMap(({ held }) => held()));
  const lanes = allLanes();
  const [least, most] = [Math.floor(lanes / running.length), Math.ceil(lanes / running.length)];
  return all.size === lanes && counts.every((count) => count === least || count === most);
};

describe.each(shapes)('$SHARDS shards of $LANES lanes', (given) => {
  beforeAll(async () => {
    shape = given;
    await redis.flushall();
  });
  afterAll(async () => {
    for (const worker of running.splice(0)) await worker.stop();
  });

  test('8 workers with even shares hold at most 1.25 blocking connections per lane', async () => {
    running.push(startWorker());
    await waitUntil(() => isEven(), { what: 'all lanes at the first worker' });
    for (let more = 1; more < 8; more++) running.push(startWorker());
    await waitUntil(() => isEven(), { what: 'even shares' });
    await waitUntil(async () => (await blocking()) === allLanes(), { what: 'a connection for each lane' });
    expect(await blocking()).toBeLessThanOrEqual(1.25 * allLanes());
  });

  test('a worker that stops leaves its lanes to the others and closes its connections', async () => {
    for (const leaving of running.splice(0, 5)) await leaving.stop();
    await waitUntil(() => isEven(), { what: 'even shares of those that are left' });
    await waitUntil(async () => (await blocking()) === allLanes(), { what: 'a connection for each lane' });
  });
});
