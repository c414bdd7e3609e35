import { afterEach, describe, expect, test } from 'vitest';
import { createDatabase, startRedis, type TestRedis, waitUntil } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess, type TestProcess } from '../setup/processes.ts';

const running: TestProcess[] = [];
afterEach(async () => {
  for (const process of running.splice(0)) {
    process.kill('SIGKILL');
    await process.exit;
  }
});

// Warnings about other settings are tested in redis-settings.test.ts.
describe.each([
  ['web', 'dist/src/web.js', 'PORT'],
  ['worker', 'dist/workers/worker.js', 'WORKER_PORT'],
])('%s', (name, file, port) => {
  async function begin(redisUrl: string): Promise<TestProcess> {
    const { url } = await createDatabase();
    const env = { DATABASE_URL: url, REDIS_URL: redisUrl, [port]: String(await leasePort()) };
    const process = startProcess(file, env);
    running.push(process);
    return process;
  }

  /** The warnings about Redis that were logged until the process was ready. */
  async function warnings({ url }: TestRedis): Promise<string[]> {
    const process = await begin(url);
    await waitUntil(() => process.log.some(({ msg }) => msg === 'ready'), { what: 'the start' });
    const lines = process.log.filter(({ level, msg }) => level === 40 && String(msg).includes('Redis'));
    return lines.map(({ msg, appendonly, appendfsync }) => `${appendonly} ${appendfsync}: ${msg}`);
  }

  test('G1: a Redis with an eviction policy stops the start, and the error names the setting', async () => {
    const redis = await startRedis({ args: ['--maxmemory-policy', 'allkeys-lru'] });
    const process = await begin(redis.url);
    expect(await process.exit).toMatchObject({ code: 1 });
    expect(process.log.filter(({ text }) => text)).toEqual([
      {
        text: `${name}: the Redis of REDIS_URL has maxmemory-policy allkeys-lru and can drop accepted objects; set maxmemory-policy to noeviction`,
      },
    ]);
  });

  test('a Redis with production settings is used without a warning', async () => {
    expect(await warnings(await startRedis())).toEqual([]);
  });

  test('a Redis that does not write to disk is used with a warning about the risk of a crash', async () => {
    expect(await warnings(await startRedis({ args: ['--appendonly', 'no'] }))).toEqual([
      expect.stringMatching(/^no always: .*every accepted object/),
    ]);
  });

  test('G1: an eviction policy also stops the process if Redis was unavailable at the start', async () => {
    const redisPort = await leasePort();
    const process = await begin(`redis://127.0.0.1:${redisPort}`);
    // Web runs without its queue and answers 503. A worker logs no line before it has its queue.
    await waitUntil(() => process.log.length > 0 || name === 'worker', { what: 'the start' });
    await startRedis({ port: redisPort, args: ['--maxmemory-policy', 'allkeys-random'] });
    expect(await process.exit).toMatchObject({ code: 1 });
    const lines = process.log.map(({ text, msg }) => String(text ?? msg));
    expect(lines.join('\n')).toContain('maxmemory-policy allkeys-random');
  });
});
