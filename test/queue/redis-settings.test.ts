import { pino } from 'pino';
import { afterEach, describe, expect, test } from 'vitest';
import { ConfigError, readConfig } from '../../src/platform/config.ts';
import type { Log } from '../../src/platform/log.ts';
import { connectProducer, connectWorker, type QueueConnection } from '../../src/queue/connection.ts';
import { requireRedisSettings } from '../../src/queue/redis.ts';
import { startRedis } from '../setup/fixtures.ts';
import { withoutConfig } from './redis-settings.ts';

const connections: QueueConnection[] = [];
afterEach(async () => {
  for (const connection of connections.splice(0)) await connection.stop();
});

// Processes are tested in redis-settings.processes.test.ts.
describe.each([
  ['the web process', connectProducer],
  ['a worker', connectWorker],
])('on the connection of %s', (_, connect) => {
  /** The warnings about a Redis before it is used. */
  async function warnings(url: string): Promise<string[]> {
    const lines: string[] = [];
    const write = (line: string) => {
      const { appendonly, appendfsync, msg } = JSON.parse(line);
      lines.push(`${appendonly} ${appendfsync}: ${msg}`);
    };
    const connection = connect(readConfig({ REDIS_URL: url }), '');
    connections.push(connection);
    await requireRedisSettings(connection, pino({ level: 'warn' }, { write }) as Log);
    return lines;
  }

  test('G1: without permission for CONFIG, the policy is read from INFO', async () => {
    const redis = await startRedis({ args: ['--maxmemory-policy', 'volatile-ttl'] });
    const used = warnings(await withoutConfig(redis));
    await expect(used).rejects.toThrow(ConfigError);
    await expect(used).rejects.toThrow('maxmemory-policy volatile-ttl');
  });

  test('a Redis with production settings is used without a warning', async () => {
    expect(await warnings((await startRedis()).url)).toEqual([]);
  });

  test.each([
    ['that writes once a second', ['--appendfsync', 'everysec'], /^yes everysec: .*last one or two seconds/],
    ['that leaves writing to the system', ['--appendfsync', 'no'], /^yes no: .*has not written to disk/],
  ])('a Redis %s is used with a warning about the risk of a crash', async (_, args, text) => {
    expect(await warnings((await startRedis({ args })).url)).toEqual([expect.stringMatching(text)]);
  });

  test('a Redis that does not report when it writes is used with a warning', async () => {
    expect(await warnings(await withoutConfig(await startRedis()))).toEqual([
      expect.stringMatching(/^yes unknown: Penstock could not read appendonly and appendfsync of Redis/),
    ]);
  });
});
