import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { connectProducer, type QueueConnection } from '../../src/queue/connection.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createLaneShares } from '../../workers/lane/share.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';

let redis: Redis;
let connection: QueueConnection;
beforeAll(async () => {
  const { url } = await startRedis();
  redis = new Redis(url);
  connection = connectProducer(readConfig({ REDIS_URL: url }), '');
  await waitUntil(connection.ready, { what: 'Redis' });
});
beforeEach(async () => void (await redis.flushall()));
afterAll(async () => {
  redis.disconnect();
  await connection.stop();
});

/** A worker that immediately opens and closes lanes as assigned. */
function worker({ lanes = 64, reads = 1, lease = 60_000 } = {}) {
  const { endLease } = connection.laneStore;
  const shares = createLaneShares(redis, {
    ...{ id: newId(), layout: { shards: 1, lanes }, reads, lease, endLease },
  });
  let open: number[] = [];
  return {
    shares,
    open: () => open,
    async leaveToLater(lane: number, milliseconds: number) {
      open = open.filter((one) => one !== lane);
      await shares.leaveToLater(lane, 2, milliseconds);
    },
    async beat(leaves = false) {
      const own = await shares.beat(open, leaves);
      const closed = open.filter((lane) => !own.includes(lane));
      open = own;
      for (const lane of closed) await shares.giveBack(lane);
    },
  };
}

type Worker = ReturnType<typeof worker>;

/** Runs several rounds of heartbeats, and checks that two workers never have the same lane. */
async function rounds(workers: Worker[], count = 3): Promise<void> {
  for (let round = 0; round < count; round++)
    for (const one of workers) {
      await one.beat();
      const all = workers.flatMap(({ open }) => open());
      expect(new Set(all).size).toBe(all.length);
    }
}

const sizes = (workers: Worker[]) => workers.map(({ open }) => open().length).sort((a, b) => a - b);
const everyLane = (workers: Worker[]) => workers.flatMap(({ open }) => open()).sort((a, b) => a - b);
const upTo = (count: number) => Array.from({ length: count }, (_, lane) => lane);

test('one worker has all lanes at its first heartbeat', async () => {
  const alone = worker();
  await alone.beat();
  expect(alone.open()).toEqual(upTo(64));
});

test.for([
  [64, 8],
  [64, 5],
  [10, 4],
  [200, 7],
  [3, 5],
  [1, 3],
])(
  '%i lanes over %i workers: shares differ by at most one while workers join and leave',
  async ([lanes, count]) => {
    const workers: Worker[] = [];
    const isEven = () => {
      const [least, most] = [Math.floor(lanes! / workers.length), Math.ceil(lanes! / workers.length)];
      expect(everyLane(workers)).toEqual(upTo(lanes!));
      expect([sizes(workers)[0], sizes(workers).at(-1)]).toEqual([least, most]);
    };
    for (let come = 0; come < count!; come++) {
      workers.push(worker({ lanes: lanes! }));
      await rounds(workers);
      isEven();
    }
    while (workers.length > 1) {
      const leaving = workers.splice(workers.length >> 1, 1)[0]!;
      await leaving.beat(true);
      await leaving.shares.end();
      await rounds(workers, 2);
      isEven();
    }
  },
);

test('workers keep their lanes, and only as many lanes move as necessary', async () => {
  const workers = [worker(), worker(), worker(), worker()];
  await rounds(workers);
  const before = workers.map(({ open }) => open());
  await rounds(workers);
  expect(workers.map(({ open }) => open())).toEqual(before);
  const fifth = worker();
  await rounds([...workers, fifth]);
  for (const [index, one] of workers.entries())
    expect(before[index]!.filter((lane) => one.open().includes(lane))).toEqual(one.open());
});

test('a worker loses its lanes after a silent lease, and gets a share again when it is back', async () => {
  const frozen = worker({ lease: 300 });
  const other = worker({ lease: 300 });
  await rounds([frozen, other]);
  await waitUntil(
    async () => {
      await other.beat();
      return other.open().length === 64;
    },
    { what: 'all lanes at the other', deadline: 3000 },
  );
  expect(frozen.open()).toHaveLength(32);
  await frozen.beat();
  expect(frozen.open()).toEqual([]);
  await rounds([other, frozen], 2);
  expect(sizes([frozen, other])).toEqual([32, 32]);
});

test('a worker that wakes after its replacement was killed takes over every lane', async () => {
  const frozen = worker({ lanes: 2, lease: 300 });
  const killed = worker({ lanes: 2, lease: 300 });
  await rounds([frozen, killed]);
  await waitUntil(
    async () => {
      await killed.beat();
      return killed.open().length === 2;
    },
    { what: 'both lanes at the worker that is killed', deadline: 3000 },
  );
  const expired = async () => {
    const [seconds] = await redis.time();
    return (await redis.zcount('{penstock}:shares:workers', Number(seconds) * 1000, '+inf')) === 0;
  };
  await waitUntil(expired, { what: 'the end of its lease', deadline: 3000 });
  await frozen.beat();
  await frozen.beat();
  expect(frozen.open()).toEqual([0, 1]);
});

test('a leaving worker keeps each lane until it closes it, and gets no new lane', async () => {
  const [leaving, other] = [worker({ lanes: 4 }), worker({ lanes: 4 })];
  await rounds([leaving, other]);
  const [first, second] = leaving.open();
  await leaving.shares.beat(leaving.open(), true);
  await other.beat();
  expect(other.open()).toHaveLength(2);
  await leaving.shares.giveBack(first!);
  await other.beat();
  expect(other.open()).toContain(first);
  expect(other.open()).not.toContain(second);
  expect(await leaving.shares.beat([second!], true)).toEqual([]);
});

test('an assigned lane that its worker never opened is free at once when it is to move', async () => {
  const [deaf, other, third] = [worker({ lanes: 6 }), worker({ lanes: 6 }), worker({ lanes: 6 })];
  await deaf.shares.beat([]);
  await other.beat();
  await deaf.shares.beat([]);
  await rounds([other], 1);
  expect(other.open()).toHaveLength(3);
  await third.beat();
  await deaf.shares.beat([], true);
  await rounds([other, third]);
  expect(everyLane([other, third])).toEqual(upTo(6));
});

test('lanes are assigned as before after Redis lost the assignment', async () => {
  const workers = [worker(), worker(), worker()];
  await rounds(workers);
  const before = workers.map(({ open }) => open());
  await redis.flushall();
  await rounds(workers);
  expect(workers.map(({ open }) => open())).toEqual(before);
});

test('a lane that needs a later release waits, or exceeds the share of a worker that reads it', async () => {
  const older = [worker({ lanes: 4 }), worker({ lanes: 4 })];
  await rounds(older);
  const [lane] = older[0]!.open();
  await older[0]!.leaveToLater(lane!, 60_000);
  await rounds(older);
  expect(everyLane(older)).not.toContain(lane);
  const later = worker({ lanes: 4, reads: 2 });
  await later.beat();
  expect(later.open()).toContain(lane);
  await rounds([...older, later]);
  expect(everyLane([...older, later])).toEqual(upTo(4));
  // After its time has ended it is an ordinary lane.
  await later.leaveToLater(lane!, 0);
  await rounds([...older, later]);
  expect(everyLane([...older, later])).toEqual(upTo(4));
});

test('the active jobs of a killed worker are handed out again, and jobs of closed lanes are not', async () => {
  const lockOf = (lane: number) => `{penstock}:lane-${lane}:job:lock`;
  const killed = worker({ lanes: 2, lease: 200 });
  await killed.beat();
  for (const lane of [0, 1]) {
    await redis.lpush(`{penstock}:lane-${lane}:active`, 'job');
    await redis.set(lockOf(lane), 'token');
  }
  const other = worker({ lanes: 2 });
  await other.beat();
  await killed.beat();
  await other.beat();
  expect(other.open()).toHaveLength(1);
  expect(await redis.exists(lockOf(other.open()[0]!))).toBe(1);
  const [left] = killed.open();
  await waitUntil(
    async () => {
      await other.beat();
      return other.open().length === 2;
    },
    { what: 'the take-over', deadline: 3000 },
  );
  await waitUntil(async () => (await redis.exists(lockOf(left!))) === 0, { what: 'the end of the lease' });
  expect(await redis.smembers(`{penstock}:lane-${left}:stalled`)).toEqual(['job']);
});
