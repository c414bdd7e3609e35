import { chmodSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findBinaries } from '../../../src/embedded/server.ts';
import { createLog } from '../../../src/platform/log.ts';
import { migrate } from '../../../src/processes/migrate.ts';
import { everyLaneMoves } from '../../../test/setup/fleet.ts';
import { leaveBehind, temporaryFolder } from '../../../test/setup/left-behind.ts';
import { startPostgresOnPort } from '../../../test/setup/postgres-on-port.ts';
import { startRedis } from '../../../test/setup/redis.ts';
import { cannotCutPower, followDurable } from '../power-cut/durable-folder.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

const TIMEOUT_MS = 60_000;

/** The machine of the stores loses power under load, so that all bytes that were not synced are lost. */
export const powerCuts: Scenario = {
  number: 39,
  fault: 'power cuts: what Redis and Postgres had not synced is lost',
  backends: ['redis', 'postgres'],
  impossible: cannotCutPower,
  async run(scene) {
    const postgres = await startCutPostgres();
    const redis = scene.backend === 'redis' ? await startCutRedis() : undefined;
    const { fleet, load, circles } = await beginTraffic(scene, {
      url: postgres.url,
      ...(redis && { redis: redis.first, env: { QUEUE_TIMEOUT_MS: '2000' } }),
    });
    const cuts = scene.choose(20, 2);
    let [lost, longest] = [0, 0];
    for (let cut = 1; cut <= cuts; cut++) {
      await sleep(scene.choose(1000, 200) * (0.5 + scene.random()));
      await load.more(scene.choose(300, 30));
      scene.say(`power cut ${cut} of ${cuts}`);
      // Both stores lose power before either is restarted.
      await Promise.all([postgres.kill(), redis?.kill()]);
      lost += postgres.cut() + (redis?.cut() ?? 0);
      await Promise.all([postgres.start(), redis?.start()]);
      const gap = await everyLaneMoves(fleet, TIMEOUT_MS).catch(() => Number.POSITIVE_INFINITY);
      scene.recovered(gap);
      longest = Math.max(longest, gap);
    }
    scene.figure('power cuts', cuts, '', { atLeast: scene.choose(20, 2) });
    scene.figure('files of which something was not on disk', lost, '', { atLeast: 1 });
    scene.figure('longest until every lane moves again', longest / 1000, 's', { atMost: 30 });
    await scene.waitUntilApplied(fleet, { load, circles });
  },
};

async function startCutRedis() {
  const dir = temporaryFolder('penstock-cut-redis-');
  const folder = followDurable(dir, 'redis-server');
  const start = (port?: number) => startRedis({ ...(port && { port }), dir, server: folder.program });
  let server = await start();
  return {
    first: server,
    kill: () => server.kill(),
    cut: folder.cut,
    async start() {
      server = await start(server.port);
    },
  };
}

/** Creates and migrates a Postgres before the first power cut. */
async function startCutPostgres() {
  const home = path.join(temporaryFolder('penstock-cut-postgres-'), 'data');
  chmodSync(path.dirname(home), 0o755);
  const log = createLog('test', 'silent');
  const made = await startPostgresOnPort(home, log);
  await migrate(made.url);
  await made.stop();
  const cluster = path.join(home, 'postgres');
  const real = await findBinaries();
  const folder = followDurable(cluster, real.postgres);
  const start = () => startPostgresOnPort(home, log, { ...real, postgres: folder.program });
  let server = await start();
  leaveBehind(() => server.stop());
  return {
    url: server.url,
    async kill() {
      const pid = Number(readFileSync(path.join(cluster, 'postmaster.pid'), 'utf8').split('\n')[0]);
      // Kill all processes of the server at once, before one of them can write again.
      process.kill(-pid, 'SIGKILL');
      await server.exited;
      await server.stop();
    },
    cut: folder.cut,
    async start() {
      server = await start();
    },
  };
}
