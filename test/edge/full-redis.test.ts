import { expect, test } from 'vitest';
import { isUnavailable, whyUnavailable } from '../../src/edge/unavailable.ts';
import { redisTokenBuckets } from '../../src/limits/token-buckets.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { startRedis } from '../setup/fixtures.ts';

const size = { requests: 10, windowSeconds: 60 };
const refusalOf = (redis: Redis) =>
  redisTokenBuckets(redis)
    .take('workspace:bucket', size, 1)
    .catch((error: unknown) => error);

test('G5: a rate limit that a full Redis cannot count results in 503, not in 500', async () => {
  const { url } = await startRedis();
  const redis = new Redis(url);
  await redis.config('SET', 'maxmemory', '1');
  const refused = await refusalOf(redis);
  redis.disconnect();
  expect(String(refused)).toContain('OOM');
  expect([isUnavailable(refused), whyUnavailable(refused)]).toEqual([true, 'redisUnavailable']);
});

test('a rate limit that cannot reach Redis names Redis as the cause of the 503', async () => {
  // Port 1 of the loopback address has no server. The offline queue rejects with the error of the connection itself.
  const redis = new Redis('redis://127.0.0.1:1', { maxRetriesPerRequest: 0, retryStrategy: () => null });
  redis.on('error', () => {});
  const refused = await refusalOf(redis);
  redis.disconnect();
  expect([isUnavailable(refused), whyUnavailable(refused)]).toEqual([true, 'redisUnavailable']);
});

test('an error of a command itself does not result in 503', async () => {
  const { url } = await startRedis();
  const redis = new Redis(url);
  await redis.set('{penstock}:limit:workspace:bucket', 'no bucket');
  const refused = await refusalOf(redis);
  redis.disconnect();
  expect(String(refused)).toContain('WRONGTYPE');
  expect(isUnavailable(refused)).toBe(false);
});
