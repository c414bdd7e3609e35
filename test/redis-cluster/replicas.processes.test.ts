import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { withTimeout } from '../../src/platform/lifecycle.ts';
import { createLog } from '../../src/platform/log.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, type QueueConnection } from '../../src/queue/connection.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { type LaneEntry, laneName, QueueUnavailable } from '../../src/queue/lanes.ts';
import { additionsOf } from '../../src/queue/loss.ts';
import { startRedis, type TestRedis, waitUntil } from '../setup/fixtures.ts';
import { LANES_KEY, startRedisCluster, type TestCluster } from '../setup/redis-cluster.ts';

const LANES = 2;
const TIMEOUT = 1000;
const stops: (() => unknown)[] = [];
afterAll(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** Returns an empty envelope for each lane. */
function entries(): LaneEntry[] {
  const envelope: Envelope = { requests: [], objects: [] };
  return Array.from({ length: LANES }, (_, lane) => ({ lane, id: newId(), envelope }));
}

async function open(env: Record<string, string>) {
  const config = readConfig({ ...env, LANES: String(LANES), QUEUE_TIMEOUT_MS: String(TIMEOUT) });
  const connection = connectProducer(config, '');
  const producer = createLaneProducer(connection, { timeout: TIMEOUT, log: createLog('test', 'silent') });
  await waitUntil(() => connection.ready(), { what: 'the queue' });
  await waitUntil(() => producer.add(entries()).then(() => true), { what: 'the first add' });
  stops.push(connection.stop, producer.stop);
  return { connection, producer };
}

/** Returns the ids in each lane, in order. */
async function held(connection: QueueConnection): Promise<string[][]> {
  return Promise.all(
    Array.from({ length: LANES }, async (_, lane) => {
      const queue = openQueue(connection, laneName(lane));
      const ids = await queue.getRanges(['waiting'], 0, -1, true);
      await queue.close();
      return ids;
    }),
  );
}

describe('with REDIS_WAIT_REPLICAS=1, a primary and a replica', () => {
  let primary: TestRedis;
  let replica: TestRedis;
  let opened: Awaited<ReturnType<typeof open>>;
  beforeAll(async () => {
    primary = await startRedis({ args: ['--repl-diskless-sync-delay', '0'] });
    replica = await startRedis({ args: ['--replicaof', '127.0.0.1', String(primary.port)] });
    opened = await open({ REDIS_URL: primary.url, REDIS_WAIT_REPLICAS: '1' });
  });

  test('G1, G5: without its replica adds fail in time, and further jobs are not even stored', async () => {
    const { connection, producer } = opened;
    process.kill(replica.pid, 'SIGSTOP');
    try {
      const before = await held(connection);
      const first = entries();
      await expect(withTimeout(TIMEOUT, producer.add(first))).rejects.toBeInstanceOf(QueueUnavailable);
      // The job is stored and may take effect, which a 503 permits.
      const after = before.map((ids, lane) => [...ids, first[lane]!.id]);
      expect(await held(connection)).toEqual(after);
      for (let times = 0; times < 3; times++)
        await expect(withTimeout(TIMEOUT, producer.add(entries()))).rejects.toBeInstanceOf(QueueUnavailable);
      expect(await held(connection)).toEqual(after);
    } finally {
      process.kill(replica.pid, 'SIGCONT');
    }
    await waitUntil(() => producer.add(entries()).then(() => true), { what: 'the replica' });
  });

  test('G1: the promoted replica has all acknowledged jobs', async () => {
    const { producer } = opened;
    const acknowledged: LaneEntry[] = [];
    let ended = false;
    const adding = (async () => {
      while (!ended) {
        const these = entries();
        await producer.add(these).then(
          () => acknowledged.push(...these),
          // Adds fail at once while the primary is away.
          () => sleep(10),
        );
      }
    })();
    await waitUntil(() => acknowledged.length > 100, { what: 'some to be acknowledged' });
    await primary.kill();
    ended = true;
    await adding;
    const connection = connectProducer(readConfig({ REDIS_URL: replica.url, LANES: String(LANES) }), '');
    stops.push(connection.stop);
    await waitUntil(() => connection.ready(), { what: 'the replica' });
    const stored = new Set((await held(connection)).flat());
    expect(acknowledged.filter(({ id }) => !stored.has(id))).toEqual([]);
  });
});

test('G1: a replica that cannot write to its disk fails adds if the server has WAITAOF', async () => {
  const server = process.env.TEST_REDIS_SERVER;
  const one = await startRedis({ ...(server && { server }) });
  const follower = await startRedis({
    ...(server && { server }),
    args: ['--replicaof', '127.0.0.1', String(one.port)],
  });
  const primary = new Redis(one.url);
  stops.push(() => primary.disconnect());
  const [expected] = (await primary.call('COMMAND', 'INFO', 'WAITAOF')) as unknown[];
  // A replica that has just copied all data first writes a new file.
  const isOnDisk = async () => {
    await primary.incr('probe');
    return ((await primary.call('WAITAOF', 0, 1, 100)) as number[])[1] === 1;
  };
  if (expected) await waitUntil(isOnDisk, { what: 'the disk of the replica' });
  const { producer } = await open({ REDIS_URL: one.url, REDIS_WAIT_REPLICAS: '1' });
  await producer.add(entries());
  const operator = new Redis(follower.url);
  stops.push(() => operator.disconnect());
  await operator.config('SET', 'appendonly', 'no');
  if (expected) {
    await expect(producer.add(entries())).rejects.toBeInstanceOf(QueueUnavailable);
    await operator.config('SET', 'appendonly', 'yes');
    await waitUntil(() => producer.add(entries()).then(() => true), { what: 'the disk of the replica' });
  } else await producer.add(entries());
});

describe('with REDIS_WAIT_REPLICAS=1, a cluster', () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster({ primaries: 3, replicas: 1 });
    stops.push(cluster.stop);
  });

  test('G1, G3: after a failover adds resume, and acknowledged jobs are in the lanes in order', async () => {
    const { connection, producer } = await open({ ...cluster.env, REDIS_WAIT_REPLICAS: '1' });
    const acknowledged: LaneEntry[][] = [];
    const addSome = async (count: number) => {
      for (const most = acknowledged.length + count; acknowledged.length < most; ) {
        const these = entries();
        await producer.add(these).then(
          () => acknowledged.push(these),
          () => sleep(10),
        );
      }
    };
    await addSome(50);
    const primary = await cluster.primaryOf(LANES_KEY);
    const replica = await cluster.replicaOf(primary);
    const over = cluster.call(replica, 'CLUSTER', 'FAILOVER');
    await addSome(50);
    await over;
    await waitUntil(async () => (await cluster.primaryOf(LANES_KEY)) === replica, { what: 'the failover' });
    await cluster.waitUntilStable();
    await addSome(50);
    const stored = await held(connection);
    for (let lane = 0; lane < LANES; lane++) {
      const wanted = acknowledged.map((these) => these[lane]!.id);
      const missing = new Set(wanted);
      expect(stored[lane]!.filter((id) => missing.has(id))).toEqual(wanted);
    }
  });

  test.each(['0', '1'])(
    'G1, G3: with %s replicas to wait for, adds resume after the slot of the lanes has moved',
    async (replicas) => {
      const { connection, producer } = await open({ ...cluster.env, REDIS_WAIT_REPLICAS: replicas });
      const counted = async () => Number(await connection.redis!.get(additionsOf(0)));
      const before = { counted: await counted(), stored: (await held(connection))[0]!.length };
      const acknowledged: LaneEntry[][] = [];
      let ended = false;
      const adding = (async () => {
        while (!ended) {
          const these = entries();
          await producer.add(these).then(
            () => acknowledged.push(these),
            () => sleep(10),
          );
        }
      })();
      await waitUntil(() => acknowledged.length > 50, { what: 'some adds' });
      const from = await cluster.primaryOf(LANES_KEY);
      await cluster.moveSlot(LANES_KEY, await cluster.otherPrimary(from));
      const then = acknowledged.length;
      await waitUntil(() => acknowledged.length > then + 50, { what: 'more adds' });
      ended = true;
      await adding;
      const stored = await held(connection);
      // A loss is detected by this count, so a repeated job must count once.
      expect((await counted()) - before.counted).toBe(stored[0]!.length - before.stored);
      for (let lane = 0; lane < LANES; lane++) {
        const wanted = acknowledged.map((these) => these[lane]!.id);
        const names = new Set(wanted);
        expect(stored[lane]!.filter((id) => names.has(id))).toEqual(wanted);
      }
    },
  );

  test('G1: without its replica no job is acknowledged', async () => {
    const { producer } = await open({ ...cluster.env, REDIS_WAIT_REPLICAS: '1' });
    const replica = await cluster.replicaOf(await cluster.primaryOf(LANES_KEY));
    const { pid } = cluster.nodes[replica]!;
    process.kill(pid, 'SIGSTOP');
    await expect(producer.add(entries()))
      .rejects.toBeInstanceOf(QueueUnavailable)
      .finally(() => process.kill(pid, 'SIGCONT'));
    await waitUntil(() => producer.add(entries()).then(() => true), { what: 'the replica' });
  });
});
