import { chmodSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findBinaries } from '../../../src/embedded/server.ts';
import { createLog } from '../../../src/platform/log.ts';
import { migrate } from '../../../src/processes/migrate.ts';
import { everyLaneMoves, statusOf } from '../../../test/setup/fleet.ts';
import { leaveBehind, temporaryFolder } from '../../../test/setup/left-behind.ts';
import { startPostgresOnPort } from '../../../test/setup/postgres-on-port.ts';
import { type Sender, startProxy } from '../../../test/setup/proxy.ts';
import { startRedis } from '../../../test/setup/redis.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { longest, requestFor, untilAccepted } from '../answers.ts';
import { createLossyAddress, type LossyAddress } from '../lossy-address.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic } from '../traffic.ts';

const TIMEOUT_MS = 60_000;

/** A path to a store on which one direction can be interrupted. */
interface Path {
  url: string;
  interrupt(silent: Sender): void;
  heal(): unknown;
}

/** Packets between one process and a store vanish in one direction, without a reset. */
export const oneWayPartition: Scenario = {
  number: 34,
  fault: 'one-way partition between a worker and Postgres, and between web and Redis',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const postgres = await startPostgresWithPath(scene);
    const redis = scene.backend === 'redis' ? await startRedisWithPath(scene) : undefined;
    const { fleet, load, circles, knockKey } = await beginTraffic(scene, {
      // Several lanes with both kinds of queue, so that the worker at the end of the path has some of them.
      ...{ url: postgres.url, edges: 1, workers: 2, env: { LANES: '4', QUEUE_TIMEOUT_MS: '700' } },
      ...(redis && { redis: redis.server }),
    });
    scene.say('starting the processes behind the paths');
    const worker = await fleet.startWorker({ DATABASE_URL: postgres.path.url });
    const edge = redis && (await fleet.startEdge(undefined, { REDIS_URL: redis.path.url }));
    const partitioned = { ...fleet, edges: edge ? [edge] : [] };

    let [answered, slowest, longestRecovery] = [0, 0, 0];
    for (const cuts of roundsFor(scene, postgres.path, redis?.path)) {
      scene.say(cuts.map(({ silent, name }) => `${name} hears nothing from its ${silent}`).join(', '));
      for (const { path, silent } of cuts) path.interrupt(silent);
      const milliseconds = scene.choose(15_000, 5000);
      const end = Date.now() + milliseconds;
      const isCut = redis && cuts.some(({ path }) => path === redis.path);
      if (isCut) slowest = Math.max(slowest, longest(await requestFor(partitioned, knockKey, milliseconds)));
      for (const { path } of cuts) if (await answers(path)) answered++;
      await sleep(end - Date.now());
      for (const { path } of cuts) await path.heal();
      scene.say('healed');
      const from = Date.now();
      const took = (part: Promise<unknown>) =>
        part.then(
          () => Date.now() - from,
          () => Number.POSITIVE_INFINITY,
        );
      const parts = await Promise.all([
        took(everyLaneMoves(fleet, TIMEOUT_MS)),
        took(untilAccepted(partitioned, knockKey, TIMEOUT_MS)),
        took(untilReady(worker.port)),
      ]);
      const recovery = Math.max(...parts);
      scene.recovered(recovery);
      longestRecovery = Math.max(longestRecovery, recovery);
      const names = cuts.map(({ silent, name }) => `${name}, ${silent} silent`).join('; ');
      scene.notes.push(
        `${names}: ${parts[0]} ms until every lane moves, ${parts[2]} ms until /readyz is 200`,
      );
      await load.more(scene.choose(300, 30));
    }
    scene.figure('stores that answered on an interrupted path', answered, '', { atMost: 0 });
    if (redis) scene.figure('slowest answer of the web process', slowest / 1000, 's', { atMost: 2 });
    scene.figure('longest recovery', longestRecovery / 1000, 's', { atMost: 10 });
    await scene.waitUntilApplied(fleet, { load, circles });
  },
};

interface Cut {
  name: string;
  path: Path;
  silent: Sender;
}

/** Returns the interruptions of each round: one at a time, or in the short form two. */
function roundsFor(scene: Scene, postgres: Path, redis?: Path): Cut[][] {
  const of = (silent: Sender): Cut[] => [
    { name: 'Postgres', path: postgres, silent },
    ...(redis ? [{ name: 'Redis', path: redis, silent: other(silent) }] : []),
  ];
  const both = [of('client'), of('store')];
  return scene.choose(
    both.flat().map((cut) => [cut]),
    both,
  );
}

const other = (sender: Sender): Sender => (sender === 'client' ? 'store' : 'client');

/** Creates a lossy address, or reports why a proxy takes its place. */
function tryLossyAddress(scene: Scene): LossyAddress | undefined {
  try {
    return createLossyAddress();
  } catch (error) {
    const reason = String((error as Error).message)
      .split('\n')
      .slice(0, 2)
      .join(': ');
    scene.notes.push(
      `a proxy holds the bytes, so unacknowledged packets are not tested; for packet loss, root and tc are needed: ${reason}`,
    );
    return undefined;
  }
}

async function pathTo(url: string, address: LossyAddress | undefined): Promise<Path> {
  if (address) {
    const through = new URL(url);
    through.hostname = address.host;
    return { url: through.href, interrupt: address.drop, heal: address.heal };
  }
  const proxy = await startProxy(url);
  return { url: proxy.url, interrupt: proxy.standStill, heal: proxy.comeBack };
}

async function startRedisWithPath(scene: Scene) {
  const address = tryLossyAddress(scene);
  const server = await startRedis({ ...(address && { args: ['--bind', '127.0.0.1', address.host] }) });
  return { server, path: await pathTo(server.url, address) };
}

/** Starts a migrated Postgres that listens on the lossy address as well. */
async function startPostgresWithPath(scene: Scene) {
  const address = tryLossyAddress(scene);
  const folder = temporaryFolder('penstock-partitioned-');
  chmodSync(folder, 0o755);
  const real = await findBinaries();
  const program = path.join(folder, 'postgres');
  const hosts = ['127.0.0.1', ...(address ? [address.host] : [])].join();
  writeFileSync(program, `#!/bin/sh\nexec '${real.postgres}' "$@" -c listen_addresses=${hosts}\n`, {
    mode: 0o755,
  });
  const server = await startPostgresOnPort(path.join(folder, 'data'), createLog('test', 'silent'), {
    ...real,
    postgres: program,
  });
  leaveBehind(() => server.stop());
  await migrate(server.url);
  return { url: server.url, path: await pathTo(server.url, address) };
}

const untilReady = (port: number): Promise<unknown> =>
  waitUntil(async () => (await statusOf(port, '/readyz')) === 200, {
    ...{ what: 'the worker to be ready', deadline: TIMEOUT_MS },
  });

/** Returns whether a store answers a request for TLS on this path within a second. */
function answers({ url }: Path): Promise<boolean> {
  const { hostname, port, protocol } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port: Number(port) });
    const end = (answered: boolean) => {
      socket.destroy();
      resolve(answered);
    };
    socket.setTimeout(1000, () => end(false));
    socket.once('data', () => end(true));
    socket.once('error', () => end(false));
    socket.write(protocol.startsWith('redis') ? 'PING\r\n' : Buffer.from('0000000804d2162f', 'hex'));
  });
}
