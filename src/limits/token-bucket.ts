import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { packageRoot } from '../package-root.ts';

/** What one take gave; times in milliseconds, `now` in epoch milliseconds of the bucket's clock. */
export interface Take {
  granted: number;
  left: number;
  untilFull: number;
  untilOne: number;
  now: number;
}

/** A store of token buckets: `capacity` tokens that refill evenly within `windowSeconds`. */
export interface TokenBuckets {
  take(key: string, capacity: number, windowSeconds: number, wanted: number): Promise<Take>;
}

/** Buckets in Redis, shared by every edge: one round trip, on Redis's clock. */
export function redisTokenBuckets(redis: Redis): TokenBuckets {
  const lua = readFileSync(join(packageRoot, 'src/limits/token-bucket.lua'), 'utf8');
  redis.defineCommand('takeTokens', { numberOfKeys: 1, lua });
  const commands = redis as unknown as {
    takeTokens(key: string, capacity: number, window: number, wanted: number): Promise<number[]>;
  };
  return {
    async take(key, capacity, windowSeconds, wanted) {
      const [granted, left, untilFull, untilOne, seconds] = await commands.takeTokens(
        `{penstock}:limit:${key}`,
        capacity,
        windowSeconds,
        wanted,
      );
      return {
        granted: granted!,
        left: left!,
        untilFull: untilFull!,
        untilOne: untilOne!,
        now: seconds! * 1000,
      };
    },
  };
}

/** Buckets in this process, for the form with one edge. The same arithmetic as the Lua script. */
export function memoryTokenBuckets(clock: () => number = Date.now): TokenBuckets {
  const buckets = new Map<string, { tokens: number; at: number }>();
  return {
    async take(key, capacity, windowSeconds, wanted) {
      const now = clock();
      const perMillisecond = capacity / (windowSeconds * 1000);
      const stored = buckets.get(key) ?? { tokens: capacity, at: now };
      let tokens = Math.min(capacity, stored.tokens + Math.max(0, now - stored.at) * perMillisecond);
      const granted = Math.min(wanted, Math.floor(tokens));
      tokens -= granted;
      buckets.set(key, { tokens, at: now });
      return {
        granted,
        left: Math.floor(tokens),
        untilFull: Math.ceil((capacity - tokens) / perMillisecond),
        untilOne: tokens >= 1 ? 0 : Math.ceil((1 - tokens) / perMillisecond),
        now,
      };
    },
  };
}
