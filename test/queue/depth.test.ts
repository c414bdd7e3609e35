import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { connectProducer, type QueueConnection } from '../../src/queue/connection.ts';
import { watchDepth } from '../../src/queue/depth.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';

const [SHARDS, LANES] = [4, 64];

let asking: Redis;
let connection: QueueConnection;
let depth: ReturnType<typeof watchDepth>;
beforeAll(async () => {
  const { url } = await startRedis();
  asking = new Redis(url);
  const DATABASE_URL = 'postgresql://nobody@127.0.0.1:1/nothing';
  const config = readConfig({
    ...{ DATABASE_URL, REDIS_URL: url, LANES: String(LANES), SHARDS: String(SHARDS) },
  });
  connection = connectProducer(config, DATABASE_URL);
  await waitUntil(connection.ready, { what: 'Redis' });
  depth = watchDepth(connection.laneStore, SHARDS * LANES);
});
afterAll(async () => {
  await depth.stop();
  await connection.stop();
  asking.disconnect();
});

async function readStat(section: string, name: RegExp): Promise<number> {
  return Number(name.exec((await asking.info(section)) as string)?.[1] ?? 0);
}

test('waiting jobs are counted by shard, over all of its lanes', async () => {
  const producer = createLaneProducer(connection, { timeout: 5000, log: createLog('test', 'silent') });
  const nothing = { requests: [], objects: [] };
  for (const lane of [0, 63, 64, 3 * LANES, 4 * LANES - 1])
    await producer.add([{ lane, id: `0190a0b0-0000-7000-8000-00000000${1000 + lane}`, envelope: nothing }]);
  await producer.stop();
  await waitUntil(() => depth.isCurrent() && depth.waiting() === 5, { what: 'all of it' });
  expect([0, 1, 2, 3].map((shard) => depth.waiting(shard))).toEqual([2, 1, 0, 2]);
  expect(depth.maxWaiting()).toBe(2);
});

test('G5: counting the jobs of hundreds of lanes takes one read per shard, not one per lane', async () => {
  const countReads = async () =>
    (await readStat('commandstats', /cmdstat_llen:calls=(\d+)/)) / (SHARDS * LANES);
  const reads = () => readStat('stats', /total_reads_processed:(\d+)/);
  const [before, read] = [await countReads(), await reads()];
  await waitUntil(async () => (await countReads()) >= before + 3, { what: 'three looks more' });
  const count = (await countReads()) - before;
  // The commands of this test are included; with one command per lane there would be hundreds of reads.
  expect((await reads()) - read).toBeLessThan(count * SHARDS * 8 + 100);
});
