import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '../../../src/platform/lifecycle.ts';
import { everyLaneMoves } from '../../../test/setup/fleet.ts';
import { startRedis } from '../../../test/setup/redis.ts';
import { knockFor, untilAccepted } from '../answers.ts';
import { cannotMount, mountSmallDisk } from '../mounted.ts';
import { startOwnPostgres } from '../own-postgres.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic } from '../traffic.ts';

/** A cluster, its log of writes, and some room. */
const POSTGRES_MB = 320;
const AOF_MB = 24;
/** Bytes that are left when the disk is said to be full. */
const REST = 64 * 1024;

export const fullDisk: Scenario = {
  number: 24,
  fault: 'disk full, for Postgres and for the AOF of Redis',
  backends: ['redis', 'postgres'],
  impossible: cannotMount,
  async run(scene) {
    if (scene.backend === 'redis') await fullForTheAof(scene);
    await fullForPostgres(scene);
  },
};

/** What is left of a disk has to be written full. */
const FLOOD = { rate: Number.POSITIVE_INFINITY };

/** Redis ends when it cannot write; a supervisor starts it again, and again. */
async function fullForTheAof(scene: Scene): Promise<void> {
  const disk = mountSmallDisk(AOF_MB);
  const redis = await startRedis({ dir: disk.folder });
  const { fleet, load, circles, knockKey } = await beginTraffic(
    scene,
    { redis, env: { QUEUE_TIMEOUT_MS: '700' } },
    FLOOD,
  );
  scene.say('no room for the AOF');
  disk.fill(REST);
  await sleep(scene.choose(5000, 1500));
  const knocks = await knockFor(fleet, knockKey, scene.choose(3000, 1000));
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
  await scene.settle(fleet, { load, circles });
}

/** Postgres refuses what it cannot store, or ends when it cannot write its log; its supervisor starts it again. */
async function fullForPostgres(scene: Scene): Promise<void> {
  const disk = mountSmallDisk(POSTGRES_MB);
  const postgres = await startOwnPostgres(disk.folder);
  const { fleet, load, circles, knockKey } = await beginTraffic(scene, { url: postgres.url }, FLOOD);
  scene.say('no room for Postgres');
  disk.fill(REST);
  await sleep(scene.choose(20_000, 4000));
  const knocks = await knockFor(fleet, knockKey, scene.choose(3000, 1000));
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
  await scene.settle(fleet, { load, circles });

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
