import { expect, test } from 'vitest';
import { isUnavailable } from '../../src/edge/reply.ts';
import { redisTokenBuckets } from '../../src/limits/token-buckets.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { startRedis } from '../setup/fixtures.ts';

test('G5: a rate limit that a full Redis does not count is a reason for 503, not for 500', async () => {
  const { url } = await startRedis();
  const redis = new Redis(url);
  await redis.config('SET', 'maxmemory', '1');
  const refused = await redisTokenBuckets(redis)
    .take('workspace:bucket', { requests: 10, windowSeconds: 60 }, 1)
    .catch((error: unknown) => error);
  redis.disconnect();
  expect(String(refused)).toContain('OOM');
  expect(isUnavailable(refused)).toBe(true);
});
