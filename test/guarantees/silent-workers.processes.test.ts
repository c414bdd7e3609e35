import { once } from 'node:events';
import { createServer, connect as dial, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { send } from '../setup/api.ts';
import { startRedis, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { spawnOnLeash } from '../setup/leash.ts';
import { isLong } from '../setup/length.ts';
import { leasePort } from '../setup/ports.ts';
import { countProcessed, type Fleet, startFleet } from './fleet.ts';

const time = '2026-01-31T12:00:00Z';

/** Milliseconds; the watchdog waits for a multiple of this. */
const LOCK = 700;
const env = { LOCK_DURATION_MS: String(LOCK), QUEUE_TIMEOUT_MS: '700', LOG_LEVEL: 'warn' };

function track({ edges, workspace }: Fleet, external_id = 'ada') {
  const json = { events: [{ external_id, name: 'seen', time }] };
  return send(edges[0]!.port, { path: '/users/track', key: workspace.key, json });
}

/** Sends until so many requests are accepted, and waits until they are applied. */
async function applies(fleet: Fleet, count: number): Promise<void> {
  const before = await countProcessed(fleet);
  for (let accepted = 0; accepted < count; ) {
    const { status } = await track(fleet, `user-${accepted}`);
    if (status === 201) accepted++;
    else await sleep(50);
  }
  await waitUntil(async () => (await countProcessed(fleet)) >= before + count, { what: 'all to be applied' });
}

/**
 * Starts a proxy to Redis whose open connections can go silent, as when a host vanishes; new connections
 * work.
 */
async function startVanishing(target: number) {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const store = dial(target, '127.0.0.1');
    for (const [from, to] of [
      [client, store],
      [store, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => {});
      from.on('data', (chunk) => void (to.destroyed || to.write(chunk)));
      from.on('close', () => to.destroy());
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  afterAll(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return {
    port: (server.address() as { port: number }).port,
    vanish() {
      for (const socket of sockets) {
        socket.removeAllListeners('data').removeAllListeners('close');
        socket.on('data', () => {});
      }
    },
  };
}

describe('the host of Redis vanishes without a reset, and another takes its address', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet('redis', { edges: 0, workers: 0, env });
    const network = await startVanishing(fleet.redis!.port);
    fleet.env.REDIS_URL = `redis://127.0.0.1:${network.port}`;
    await Promise.all([fleet.startEdge(), fleet.startWorker()]);
    await applies(fleet, 10);
    network.vanish();
  });
  afterAll(() => fleet.stop());

  test('web and worker reconnect, and resume without a restart', async () => {
    await applies(fleet, 10);
    expect(await fleet.fallen()).toEqual([]);
    const msg = 'connection to Redis did not answer; reconnecting';
    for (const { log, name } of [...fleet.edges, ...fleet.workers])
      await waitUntil(() => log.some((line) => line.msg === msg), { what: `the line of ${name}` });
  });
});

test("a Redis frozen for longer than the watchdog's limit ends no process, and work resumes", async () => {
  const fleet = await startFleet('redis', { edges: 1, workers: 1, env });
  await applies(fleet, 10);
  process.kill(fleet.redis!.pid, 'SIGSTOP');
  const started = performance.now();
  const refused = await track(fleet);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
  expect(performance.now() - started).toBeLessThan(1000);
  await sleep(10 * LOCK);
  expect(await fleet.fallen()).toEqual([]);
  process.kill(fleet.redis!.pid, 'SIGCONT');
  await applies(fleet, 10);
  expect(await fleet.fallen()).toEqual([]);
  await fleet.stop();
});

describe('Redis with Sentinels', () => {
  /** Starts three Sentinels, as a majority requires. @returns their addresses */
  async function startSentinels(primary: number): Promise<string> {
    const ports = await Promise.all([leasePort(), leasePort(), leasePort()]);
    const { writeFileSync } = await import('node:fs');
    for (const port of ports) {
      const dir = temporaryFolder('penstock-sentinel-');
      const file = `${dir}/sentinel.conf`;
      writeFileSync(
        file,
        [
          `port ${port}`,
          'bind 127.0.0.1',
          `dir ${dir}`,
          `sentinel monitor shop 127.0.0.1 ${primary} 2`,
          'sentinel down-after-milliseconds shop 1500',
          'sentinel failover-timeout shop 6000',
          'sentinel parallel-syncs shop 1',
        ].join('\n'),
      );
      const { child, exit } = spawnOnLeash(['redis-server', file, '--sentinel'], { stdout: 'ignore' });
      afterAll(async () => {
        child.kill('SIGKILL');
        await exit;
      });
    }
    return ports.map((port) => `127.0.0.1:${port}`).join(', ');
  }

  // A silent primary is harder to leave than a killed one, as in fault 4 of test/chaos/stores.
  test.each(isLong ? (['SIGSTOP', 'SIGKILL'] as const) : (['SIGSTOP'] as const))(
    'when the primary is lost (%s), web and worker use its successor without a restart',
    async (signal) => {
      const fleet = await startFleet('redis', { edges: 0, workers: 0, env });
      const primary = fleet.redis!;
      const successor = await startRedis({ args: ['--replicaof', '127.0.0.1', String(primary.port)] });
      fleet.env.REDIS_SENTINELS = await startSentinels(primary.port);
      fleet.env.REDIS_SENTINEL_NAME = 'shop';
      // This address is closed: the real one comes from the Sentinels.
      fleet.env.REDIS_URL = 'redis://127.0.0.1:1';
      await Promise.all([fleet.startEdge(), fleet.startWorker()]);
      await applies(fleet, 20);
      const { Redis } = await import('ioredis');
      const observer = new Redis(successor.url);
      const isListed = async (line: string) => (await observer.info('replication')).includes(line);
      await waitUntil(() => isListed('master_link_status:up'), { what: 'the successor to follow' });
      const sentinel = new Redis(`redis://${fleet.env.REDIS_SENTINELS.split(',')[0]}`);
      await waitUntil(
        async () =>
          /sentinels=3/.test(await sentinel.info('sentinel')) &&
          /slaves=1/.test(await sentinel.info('sentinel')),
        { what: 'the Sentinels to know each other' },
      );
      sentinel.disconnect();

      process.kill(primary.pid, signal);
      // Sentinels of a busy machine wait half a minute before they trust their clock, possibly more than
      // once.
      await waitUntil(() => isListed('role:master'), { what: 'the failover', deadline: 150_000 });
      await applies(fleet, 20);
      expect(await fleet.fallen()).toEqual([]);
      observer.disconnect();
      await fleet.stop();
      if (signal === 'SIGSTOP') process.kill(primary.pid, 'SIGCONT');
    },
    300_000,
  );
});
