import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Batcher } from '../platform/batcher.ts';
import { now } from '../platform/clock.ts';
import type { Config } from '../platform/config.ts';
import { packageRoot } from '../platform/files.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { openProducerRedis, type QueueConnection } from '../queue/connection.ts';
import { prefixOf } from '../queue/lanes.ts';
import { answerOf, isCluster, pingRedis, type RedisClient, RedisUnavailable } from '../queue/open-redis.ts';
import { rulesOf, type VendorRules } from '../schemas/vendor-rules.ts';
import type { Pool } from '../store/database.ts';
import { type Counter, findTokenBucket, keepTokenBuckets } from '../store/rate-limits.ts';

/**
 * Result of taking tokens. Times are in milliseconds; `now` is in epoch milliseconds of the bucket's clock.
 */
export interface Take {
  granted: number;
  left: number;
  untilFull: number;
  untilOne: number;
  now: number;
}

/** Size of a bucket: a token for each of `requests` requests, refilled evenly within the window. */
export interface BucketSize {
  requests: number;
  windowSeconds: number;
}

/** Refill mode: evenly, or completely at the start of each window of the clock. */
type Refill = VendorRules['rateWindows'];

/** A store of token buckets. A key consists of the owner's id, a colon and the name of the bucket. */
export interface TokenBuckets {
  take(key: string, size: BucketSize, wanted: number): Promise<Take>;
}

/** Maximum number of takes in one command. Each one occupies Redis's only thread for a few microseconds. */
const MAX_TAKES = 256;

/** Numbers that the script returns for each bucket. */
const NUMBERS_OF_TAKE = 5;

interface WantedTake {
  key: string;
  size: BucketSize;
  wanted: number;
}

/** Returns the shard of a bucket's owner. */
type ShardOf = (ownerId: string) => Promise<number>;

/**
 * Token buckets in Redis, shared by all web processes, on Redis's clock.
 *
 * @param shardOf set for a cluster with several shards. A bucket is stored on the server of its owner's
 * lanes, so that an unavailable server affects only the limits of its own workspaces
 */
export function redisTokenBuckets(
  redis: RedisClient,
  { shardOf, refill = 'even' }: { shardOf?: ShardOf | undefined; refill?: Refill } = {},
): TokenBuckets {
  const lua = readFileSync(join(packageRoot, 'src/limits/token-bucket.lua'), 'utf8');
  redis.defineCommand('takeTokens', { lua });
  const last = refill === 'clock' ? [refill] : [];
  const commands = redis as unknown as { takeTokens(...given: (string | number)[]): Promise<number[]> };

  async function takeAll(names: string[], takes: Omit<WantedTake, 'key'>[]): Promise<Take[]> {
    const sizes = takes.flatMap(({ size, wanted }) => [size.requests, size.windowSeconds, wanted]);
    const answers = await answerOf(commands.takeTokens(names.length, ...names, ...sizes, ...last));
    return takes.map((_, index) => {
      const [granted, left, untilFull, untilOne, now] = answers.slice(index * NUMBERS_OF_TAKE) as Five;
      return { granted, left, untilFull, untilOne, now };
    });
  }

  if (!isCluster(redis)) {
    // Batching matters: a thousand workspaces with a few requests per second each would otherwise be hundreds
    // of round trips, and as many writes to disk.
    const takes = new Batcher({
      run: (batch: WantedTake[]) =>
        takeAll(
          batch.map(({ key }) => `{penstock}:limit:${key}`),
          batch,
        ),
      maxCalls: MAX_TAKES,
      bytesOf: ({ key }) => key.length,
      isOutage: (error) => error instanceof RedisUnavailable,
    });
    return { take: (key, size, wanted) => takes.call({ key, size, wanted }) };
  }
  return {
    // Buckets are never used together, so they are spread over all servers of the cluster, and each command
    // names one key.
    async take(key, size, wanted) {
      const name = shardOf
        ? `${prefixOf(await shardOf(split(key).ownerId))}:limit:${key}`
        : `penstock:limit:{${key}}`;
      const [taken] = await takeAll([name], [{ size, wanted }]);
      return taken!;
    },
  };
}

type Five = [number, number, number, number, number];

/** Tokens that were left in a bucket at a time, in epoch milliseconds. */
interface Level {
  tokens: number;
  at: number;
}

interface MemoryTokenBuckets extends TokenBuckets {
  level(key: string): Level | undefined;
  restore(key: string, level: Level): void;
  forget(): void;
}

/** Storage for the buckets of a process: a Map, or a cache of bounded size. */
interface Levels {
  get(key: string): Level | undefined;
  set(key: string, level: Level): unknown;
  clear(): void;
}

/** Token buckets in this process, with the same arithmetic as the Lua script. */
export function memoryTokenBuckets(
  clock: () => number = now,
  levels: Levels = new Map(),
  refill: Refill = 'even',
): MemoryTokenBuckets {
  const isOnClock = refill === 'clock';
  return {
    async take(key, { requests, windowSeconds }, wanted) {
      const now = clock();
      const window = windowSeconds * 1000;
      const perMillisecond = requests / window;
      const stored = levels.get(key) ?? { tokens: requests, at: now };
      const isNewWindow = Math.floor(stored.at / window) < Math.floor(now / window);
      const refilled = isOnClock ? isNewWindow && requests : Math.max(0, now - stored.at) * perMillisecond;
      let tokens = Math.min(requests, stored.tokens + Number(refilled));
      const granted = Math.min(wanted, Math.floor(tokens));
      tokens -= granted;
      levels.set(key, { tokens, at: now });
      const untilNextWindow = window - (now % window);
      return {
        granted,
        left: Math.floor(tokens),
        untilFull: isOnClock ? untilNextWindow : Math.ceil((requests - tokens) / perMillisecond),
        untilOne: tokens >= 1 ? 0 : isOnClock ? untilNextWindow : Math.ceil((1 - tokens) / perMillisecond),
        now,
      };
    },
    level: (key) => levels.get(key),
    restore: (key, level) => void levels.set(key, level),
    forget: () => levels.clear(),
  };
}

/** Seconds from which a window survives a restart. A shorter one ends soon after a restart anyway. */
const LONG_WINDOW = 3600;

/** Milliseconds between two writes. A killed process loses at most this much. */
const WRITE_INTERVAL = 1000;

/** Buckets per statement. */
const CHUNK = 1000;

interface KeptTokenBucketsOptions {
  counter: Counter;
  pool: Pool;
  log: Log;
  /** Returns epoch milliseconds. */
  clock?: () => number;
  refill?: Refill;
}

/**
 * Token buckets in this process, for installations with one web process. Buckets with long windows survive a
 * restart: changes are written to Postgres once a second and at shutdown. A killed process forgets the
 * requests of the last second, or of the time since Postgres became unavailable, and allows them again.
 */
export function createKeptTokenBuckets({
  counter,
  pool,
  log,
  clock = now,
  refill = 'even',
}: KeptTokenBucketsOptions) {
  const memory = memoryTokenBuckets(clock, new Map(), refill);
  /** Keys that were read, each once. */
  const read = new Map<string, Promise<void>>();
  let changed = new Set<string>();
  let warned = false;

  const buckets: TokenBuckets = {
    async take(key, size, wanted) {
      if (size.windowSeconds < LONG_WINDOW) return memory.take(key, size, wanted);
      await (read.get(key) ?? readOnce(key));
      const taken = await memory.take(key, size, wanted);
      if (taken.granted > 0) changed.add(key);
      return taken;
    },
  };

  function readOnce(key: string): Promise<void> {
    const reading = restore(key).catch((error) => {
      read.delete(key);
      throw error;
    });
    read.set(key, reading);
    return reading;
  }

  async function restore(key: string): Promise<void> {
    const stored = await findTokenBucket(pool, { ...split(key), counter });
    if (stored) memory.restore(key, { tokens: stored.tokens, at: stored.at.getTime() });
  }

  /**
   * Writes changed buckets; one call at a time. Buckets that could not be written are written with the next
   * change.
   */
  async function write(): Promise<void> {
    const keys = [...changed];
    changed = new Set();
    try {
      while (keys.length > 0) {
        const chunk = keys.slice(-CHUNK).map((key) => {
          const { tokens, at } = memory.level(key)!;
          return { ...split(key), counter, tokens, at: new Date(at) };
        });
        await keepTokenBuckets(pool, chunk);
        keys.length -= chunk.length;
      }
      warned = false;
    } catch (error) {
      for (const key of keys) changed.add(key);
      if (!warned)
        log.warn(
          { err: error },
          'rate limits with a window of an hour or more were not saved to Postgres; will retry',
        );
      warned = true;
    }
  }

  const writes = poll(WRITE_INTERVAL, write);

  return {
    buckets,
    forget(): void {
      memory.forget();
      read.clear();
      changed.clear();
    },
    async stop(): Promise<void> {
      await writes.stop();
      await write();
    },
  };
}

/** Splits a key `owner:bucket`. */
function split(key: string): { ownerId: string; bucket: string } {
  const colon = key.indexOf(':');
  return { ownerId: key.slice(0, colon), bucket: key.slice(colon + 1) };
}

/** The store of the rate limits. */
interface OpenTokenBuckets {
  buckets: TokenBuckets;
  /**
   * Checks the server of the limits. Absent if there is none, or if it is the queue's server. Rejects if it
   * does not respond.
   */
  ping?: () => Promise<void>;
  /** Refills all buckets that this process counts itself, after their rows were deleted. */
  forget(): void;
  stop(): Promise<void>;
}

/**
 * Opens the store of the rate limits: the queue's Redis, or the Redis of REDIS_URL if the queue is in
 * Postgres. Without Redis, this process counts by itself and saves buckets with long windows in Postgres.
 */
export function openTokenBuckets(
  config: Config,
  queue: QueueConnection,
  { shardOf, ...kept }: KeptTokenBucketsOptions & { shardOf?: ShardOf | undefined },
): OpenTokenBuckets {
  const { rateWindows: refill } = rulesOf[config.VENDOR_RULES];
  if (queue.redis)
    return {
      buckets: redisTokenBuckets(queue.redis, { shardOf, refill }),
      forget() {},
      stop: async () => {},
    };
  if (!config.REDIS_URL) return createKeptTokenBuckets({ ...kept, refill });
  const redis = openProducerRedis(config);
  return {
    buckets: redisTokenBuckets(redis, { refill }),
    ping: () => pingRedis(redis, 1),
    forget() {},
    stop: async () => redis.disconnect(),
  };
}
