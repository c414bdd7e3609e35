import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Redis } from '../../src/queue/ioredis.ts';
import { listProcesses, unworkedLanes } from '../../src/store/processes.ts';
import type { Circles } from '../../tools/chaos/load/circles.ts';
import type { Load } from '../../tools/chaos/load/load.ts';
import { Scene } from '../../tools/chaos/scene.ts';
import { beginTraffic } from '../../tools/chaos/traffic.ts';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { everyLaneMoves, type Fleet, type Member } from '../setup/fleet.ts';

/** Number of lanes; three workers get 4, 4 and 3 of them. */
const LANES = 11;

let scene: Scene;
let fleet: Fleet;
let load: Load;
let circles: Circles;
let redis: Redis;

beforeAll(async () => {
  const database = await createDatabase();
  scene = new Scene({
    ...{ backend: 'redis', short: true, seed: 11, say() {} },
    createDatabase: async () => database,
  });
  // The defaults of a release.
  const env = { LANES: String(LANES), LOCK_DURATION_MS: '5000', STALLED_INTERVAL_MS: '1000' };
  ({ fleet, load, circles } = await beginTraffic(scene, { edges: 1, workers: 3, env }));
  redis = new Redis(fleet.redis!.url);
});
afterAll(async () => {
  redis?.disconnect();
  await scene?.stop();
});

/** Returns the number of blocking connections of all workers to lanes. */
async function blocking(): Promise<number> {
  const list = (await redis.client('LIST')) as string;
  return list.split('\n').filter((line) => / cmd=bzpopmin /.test(line)).length;
}

/** Returns the number of workers whose lease has not expired. */
async function alive(): Promise<number> {
  const [seconds] = await redis.time();
  return redis.zcount('{penstock}:shares:workers', Number(seconds) * 1000, '+inf');
}

/** Returns the number of lanes of each worker, by pid. */
async function shares(): Promise<Map<number, number>> {
  const [owners, all] = await Promise.all([
    redis.hvals('{penstock}:shares:owners'),
    listProcesses(fleet.pool),
  ]);
  const pids = new Map(all.map(({ id, pid }) => [id, pid]));
  const collected = new Map<number, number>();
  for (const owner of owners) {
    const pid = pids.get(owner) ?? 0;
    collected.set(pid, (collected.get(pid) ?? 0) + 1);
  }
  return collected;
}

/** Waits until these workers have all lanes in even shares, which differ by at most one. @returns milliseconds */
async function untilShared(workers: Member[]): Promise<number> {
  const from = performance.now();
  await waitUntil(
    async () => {
      const result = await shares();
      const counts = workers.map(({ pid }) => result.get(pid) ?? 0);
      const sum = counts.reduce((all, count) => all + count, 0);
      return sum === LANES && Math.max(...counts) - Math.min(...counts) <= 1;
    },
    { what: `even shares of ${workers.length} workers`, deadline: 30_000 },
  );
  return performance.now() - from;
}

test('three workers have even shares of the lanes, and one blocking connection per lane', async () => {
  await untilShared(fleet.workers);
  // Each worker has one more connection for replays of dead letters.
  await waitUntil(async () => (await blocking()) <= LANES + 3, { what: 'as few connections as lanes' });
  await waitUntil(async () => unworkedLanes(await listProcesses(fleet.pool), LANES).length === 0, {
    what: 'all lanes in the heartbeats',
  });
});

test('when a worker gets SIGTERM, others have its lanes within a second', async () => {
  const [leaving, ...others] = fleet.workers as [Member, ...Member[]];
  const taken = untilShared(others);
  const ended = fleet.end(leaving, 'SIGTERM');
  expect(await taken).toBeLessThan(1000);
  expect((await ended).code).toBe(0);
  await everyLaneMoves(fleet, 5000);
  await untilShared([...others, await fleet.startWorker()]);
});

test('when a worker is killed, all its lanes and active jobs progress within five seconds', async () => {
  const [killed, ...others] = fleet.workers as [Member, ...Member[]];
  await fleet.end(killed);
  const moved = await everyLaneMoves(fleet, 10_000);
  expect(moved).toBeLessThan(5000);
  expect(await untilShared(others)).toBeLessThan(1000);
});

test('others take the lanes of a frozen worker; when resumed, it closes them and gets a share', async () => {
  const [frozen, other] = fleet.workers as [Member, Member];
  frozen.kill('SIGSTOP');
  await untilShared([other]);
  await everyLaneMoves(fleet, 10_000);
  frozen.kill('SIGCONT');
  await untilShared([frozen, other]);
  await waitUntil(async () => (await blocking()) <= LANES + 2, { what: 'closed lanes' });
});

test('a worker that resumes after its replacement was killed takes all lanes within five seconds', async () => {
  const [frozen, replacement] = fleet.workers as [Member, Member];
  frozen.kill('SIGSTOP');
  await untilShared([replacement]);
  await fleet.end(replacement);
  await waitUntil(async () => (await alive()) === 0, { what: 'the end of its lease' });
  frozen.kill('SIGCONT');
  expect(await untilShared([frozen])).toBeLessThan(5000);
  await everyLaneMoves(fleet, 20_000);
  await untilShared([frozen, await fleet.startWorker()]);
}, 60_000);

test('workers survive a Redis outage longer than their lease and share the lanes evenly again', async () => {
  process.kill(fleet.redis!.pid, 'SIGSTOP');
  await sleep(4000);
  process.kill(fleet.redis!.pid, 'SIGCONT');
  await untilShared(fleet.workers);
  await everyLaneMoves(fleet, 20_000);
}, 60_000);

test('G2, G3: each object has taken effect once and in order after all these faults', async () => {
  await load.more(50);
  await scene.waitUntilApplied(fleet, { load, circles });
  expect(scene.describeFindings()).toEqual([]);
});
