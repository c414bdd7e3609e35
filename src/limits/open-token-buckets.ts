import type { Config } from '../config.ts';
import { openProducerRedis, pingRedis, type QueueConnection } from '../queue/connection.ts';
import { memoryTokenBuckets, redisTokenBuckets, type TokenBuckets } from './token-bucket.ts';

/** Where the rate limits are counted. */
export interface OpenTokenBuckets {
  buckets: TokenBuckets;
  /** Absent when no server is needed for them, or it is the queue's. Rejects when it does not answer. */
  ping?: () => Promise<void>;
  stop(): Promise<void>;
}

/**
 * The queue's Redis, or the one of REDIS_URL beside a queue in Postgres; without either, this process counts for
 * itself.
 */
export function openTokenBuckets(config: Config, queue: QueueConnection): OpenTokenBuckets {
  if (queue.redis) return { buckets: redisTokenBuckets(queue.redis), stop: async () => {} };
  if (!config.REDIS_URL) return { buckets: memoryTokenBuckets(), stop: async () => {} };
  const redis = openProducerRedis(config);
  return {
    buckets: redisTokenBuckets(redis),
    ping: () => pingRedis(redis),
    stop: async () => redis.disconnect(),
  };
}
