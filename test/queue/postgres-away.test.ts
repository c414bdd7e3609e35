import { expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { startProxy } from '../setup/proxy.ts';

test('a queue that is opened while Postgres is unavailable works once Postgres is back', async () => {
  const proxy = await startProxy((await createDatabase()).url);
  proxy.leave();
  const connection = connectProducer(readConfig({ DATABASE_URL: proxy.url }), proxy.url);
  const queue = openQueue(connection, 'lane-0');
  await expect(queue.getWaitingCount()).rejects.toThrow();
  await proxy.comeBack();
  expect(await queue.getWaitingCount()).toBe(0);
  await queue.close();
  await connection.stop();
});
