import { afterEach, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { connectWorker, type QueueConnection } from '../../src/queue/connection.ts';
import { keepAnswering } from '../../src/queue/redis.ts';
import { startTroubleProxy } from '../../tools/chaos/trouble-proxy.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';

/** Milliseconds between two checks. */
const EVERY = 200;
const SIZE = 400_000;

const stops: (() => unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

/** Opens a watched connection through a network of its own. */
async function open(): Promise<{
  connection: QueueConnection;
  network: Awaited<ReturnType<typeof startTroubleProxy>>;
  /** How often the connection was closed. */
  closed(): number;
}> {
  const network = await startTroubleProxy((await startRedis()).url, Math.random);
  const connection = connectWorker(readConfig({ REDIS_URL: network.url }), '');
  await waitUntil(connection.ready, { what: 'Redis' });
  let closed = 0;
  connection.redis!.on('close', () => closed++);
  const watch = keepAnswering(connection, EVERY, createLog('test', 'silent'));
  stops.push(watch.stop, connection.stop);
  return { connection, network, closed: () => closed };
}

test('a connection that does not answer is replaced', async () => {
  const { connection, network, closed } = await open();
  network.set({ delay: 100 * EVERY });
  await waitUntil(() => closed() > 0, { what: 'the connection to be closed' });
  network.set({});
  await waitUntil(async () => (await connection.redis!.ping()) === 'PONG', { what: 'an answer' });
});

test('a connection with slow answers is kept', async () => {
  const { connection, network, closed } = await open();
  await connection.redis!.set('large', 'x'.repeat(SIZE));
  // The answer to a check arrives after this one, several checks later.
  network.set({ bytesPerSecond: SIZE / ((10 * EVERY) / 1000) });
  expect(await connection.redis!.get('large')).toHaveLength(SIZE);
  expect(closed()).toBe(0);
});
