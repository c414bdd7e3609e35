import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '../../../src/platform/lifecycle.ts';
import { everyLaneMoves } from '../../../test/setup/fleet.ts';
import { startRedis, type TestRedis } from '../../../test/setup/redis.ts';
import { requestFor, untilAccepted } from '../answers.ts';
import { cannotMount, mountSmallDisk } from '../mounted.ts';
import { type OwnPostgres, startOwnPostgres } from '../own-postgres.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic, type Traffic } from '../traffic.ts';

/** Megabytes of the disk of Postgres, which holds a cluster, its write-ahead log and some free space. */
const POSTGRES_MB = 480;
const AOF_MB = 24;
/** Bytes that remain free when the disk counts as full. */
const REST = 64 * 1024;

/** The load must fill the rest of the disk. */
const FLOOD = { rate: Number.POSITIVE_INFINITY };

export const fullDisk: Scenario = {
  number: 24,
  fault: 'disk full, for Postgres and for the AOF of Redis',
  backends: ['redis', 'postgres'],
  impossible: cannotMount,
  async run(scene) {
    const disk = mountSmallDisk(POSTGRES_MB);
    const postgres = await startOwnPostgres(disk.folder);
    const aof = scene.backend === 'redis' ? mountSmallDisk(AOF_MB) : undefined;
    const redis = aof && (await startRedis({ dir: aof.folder }));
    const traffic = await beginTraffic(
      scene,
      { url: postgres.url, ...(redis && { redis, env: { QUEUE_TIMEOUT_MS: '700' } }) },
      FLOOD,
    );
    if (aof && redis) await fillForTheAof(scene, traffic, { disk: aof, redis });
    await fillForPostgres(scene, traffic, { disk, postgres });
    await scene.waitUntilApplied(traffic.fleet, traffic);
  },
};

type Disk = ReturnType<typeof mountSmallDisk>;

/** Fills the disk of Redis. Redis ends when it cannot write, and a supervisor restarts it repeatedly. */
async function fillForTheAof(
  scene: Scene,
  { fleet, load, knockKey }: Traffic,
  { disk, redis }: { disk: Disk; redis: TestRedis },
): Promise<void> {
  scene.say('no room for the AOF');
  disk.fill(REST);
  await sleep(scene.choose(5000, 1500));
  const knocks = await requestFor(fleet, knockKey, scene.choose(3000, 1000));
  disk.clear();
  const from = Date.now();
  if (!isAlive(redis.pid)) await startRedis({ port: redis.port, dir: disk.folder });
  await untilAccepted(fleet, knockKey, 60_000);
  await everyLaneMoves(fleet, 60_000);
  scene.recovered(Date.now() - from);
  await load.more(200);
  const others = knocks.filter(({ status, retryAfter }) => status !== 503 || !retryAfter);
  scene.figure('AOF: answers while it is full but 503 with Retry-After', others.length, '', { atMost: 0 });
  scene.figure('AOF: work resumes', scene.recoveries.at(-1)! / 1000, 's', { atMost: 15 });
}

/**
 * Fills the disk of Postgres. It refuses writes that it cannot store, or ends when it cannot write its log;
 * its supervisor then restarts it.
 */
async function fillForPostgres(
  scene: Scene,
  { fleet, load, knockKey }: Traffic,
  { disk, postgres }: { disk: Disk; postgres: OwnPostgres },
): Promise<void> {
  scene.say('no room for Postgres');
  disk.fill(REST);
  await sleep(scene.choose(20_000, 4000));
  const knocks = await requestFor(fleet, knockKey, scene.choose(3000, 1000));
  disk.clear();
  const from = Date.now();
  const ended = await Promise.race([postgres.exited().then(() => true), sleep(1000, false)]);
  if (ended) await postgres.startAgain();
  await untilAccepted(fleet, knockKey, 60_000);
  await moves(60_000);
  scene.recovered(Date.now() - from);
  await load.more(200);
  const others = knocks.filter(({ status, retryAfter }) => status !== 201 && !(status === 503 && retryAfter));
  scene.figure('Postgres: answers while it is full but 201 and 503 with Retry-After', others.length, '', {
    atMost: 0,
  });
  scene.notes.push(`Postgres ${ended ? 'had ended and was started again' : 'went on by itself'}`);
  scene.figure('Postgres: work resumes', scene.recoveries.at(-1)! / 1000, 's', { atMost: 30 });

  async function moves(deadline: number): Promise<void> {
    const end = Date.now() + deadline;
    for (;;) {
      try {
        await everyLaneMoves(fleet, Math.max(1000, end - Date.now()));
        return;
      } catch (error) {
        if (Date.now() > end) throw error;
        await sleep(100);
      }
    }
  }
}
