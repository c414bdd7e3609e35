import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { now } from '../platform/clock.ts';
import { together } from '../platform/concurrency.ts';
import type { Config } from '../platform/config.ts';
import { packageRoot } from '../platform/files.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { openProducerRedis, type QueueConnection } from '../queue/connection.ts';
import { prefixOf } from '../queue/lanes.ts';
import { answerOf, isCluster, pingRedis, type RedisClient } from '../queue/open-redis.ts';
import { rulesOf, type VendorRules } from '../schemas/vendor-rules.ts';
import type { Pool } from '../store/database.ts';
import { type Counter, findTokenBucket, keepTokenBuckets } from '../store/rate-limits.ts';

/** What one take gave; times in milliseconds, `now` in epoch milliseconds of the bucket's clock. */
export interface Take {
  granted: number;
  left: number;
  untilFull: number;
  untilOne: number;
  now: number;
}

/** What a bucket holds: a token for each of so many requests, which refill evenly within the window. */
export interface BucketSize {
  requests: number;
  windowSeconds: number;
}

/** When buckets are refilled: evenly, or at the start of each window of the clock. */
export type Refill = VendorRules['rateWindows'];

/** A store of token buckets. A key is the owner's id and the name of a bucket, with a colon between. */
export interface TokenBuckets {
  take(key: string, size: BucketSize, wanted: number): Promise<Take>;
}

/** Takes that leave in one command at most: each is some microseconds of Redis's only thread. */
const MOST_TAKES = 256;

/** Numbers that the script answers for each bucket. */
const ANSWERS = 5;

interface AskedTake {
  key: string;
  size: BucketSize;
  wanted: number;
}

/** The shard of whoever has a bucket. */
type ShardOf = (ownerId: string) => Promise<number>;

/**
 * Buckets in Redis, shared by every edge, on Redis's clock.
 *
 * @param shardOf where a cluster has several shards. A bucket lies where its owner's lanes do, so that a server that is
 *   away takes the limits of no other workspaces with it
 */
export function redisTokenBuckets(
  redis: RedisClient,
  { shardOf, refill = 'even' }: { shardOf?: ShardOf | undefined; refill?: Refill } = {},
): TokenBuckets {
  const lua = readFileSync(join(packageRoot, 'src/limits/token-bucket.lua'), 'utf8');
  redis.defineCommand('takeTokens', { lua });
  const last = refill === 'clock' ? [refill] : [];
  const commands = redis as unknown as { takeTokens(...given: (string | number)[]): Promise<number[]> };

  async function takeAll(names: string[], takes: Omit<AskedTake, 'key'>[]): Promise<Take[]> {
    const sizes = takes.flatMap(({ size, wanted }) => [size.requests, size.windowSeconds, wanted]);
    const answers = await answerOf(commands.takeTokens(names.length, ...names, ...sizes, ...last));
    return takes.map((_, index) => {
      const [granted, left, untilFull, untilOne, now] = answers.slice(index * ANSWERS) as Five;
      return { granted, left, untilFull, untilOne, now };
    });
  }

  if (!isCluster(redis)) {
    // A thousand workspaces of a few requests a second each are a few hundred round trips, and as many writes to disk.
    const ask = together((asked: AskedTake[]) => {
      const names = asked.map(({ key }) => `{penstock}:limit:${key}`);
      return takeAll(names, asked);
    }, MOST_TAKES);
    return { take: (key, size, wanted) => ask({ key, size, wanted }) };
  }
  return {
    // No two buckets are used together: they are spread over all servers of the cluster, and no command names two.
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

/** What was left of a bucket at a time, in epoch milliseconds. */
export interface Level {
  tokens: number;
  at: number;
}

export interface MemoryTokenBuckets extends TokenBuckets {
  level(key: string): Level | undefined;
  restore(key: string, level: Level): void;
  forget(): void;
}

/** Where buckets of a process are kept: a Map, or a cache of bounded size. */
interface Levels {
  get(key: string): Level | undefined;
  set(key: string, level: Level): unknown;
  clear(): void;
}

/** Buckets in this process. The same arithmetic as the Lua script. */
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

/** Seconds. A shorter window is over soon after a restart, whatever is remembered. */
const LONG_WINDOW = 3600;

/** Milliseconds between two writes: what a process that is killed forgets. */
const WRITE_INTERVAL = 1000;

/** Buckets in one statement. */
const CHUNK = 1000;

interface KeptTokenBucketsOptions {
  counter: Counter;
  pool: Pool;
  log: Log;
  /** Epoch milliseconds. */
  clock?: () => number;
  refill?: Refill;
}

/**
 * Buckets in this process, for the form with one edge. Those of long windows go on after a restart: what changed is
 * written to Postgres once a second, and at the end. Who is killed lets through again what was asked in the last
 * second, or since Postgres went away.
 */
export function createKeptTokenBuckets({
  counter,
  pool,
  log,
  clock = now,
  refill = 'even',
}: KeptTokenBucketsOptions) {
  const memory = memoryTokenBuckets(clock, new Map(), refill);
  /** Each is read once. */
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
    const found = await findTokenBucket(pool, { ...split(key), counter });
    if (found) memory.restore(key, { tokens: found.tokens, at: found.at.getTime() });
  }

  /** One at a time. What could not be written is written with what changes next. */
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
      if (!warned) log.warn({ err: error }, 'rate limits of long windows were not saved; will retry');
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

/** `owner:bucket`. */
function split(key: string): { ownerId: string; bucket: string } {
  const colon = key.indexOf(':');
  return { ownerId: key.slice(0, colon), bucket: key.slice(colon + 1) };
}

/** Where the rate limits are counted. */
export interface OpenTokenBuckets {
  buckets: TokenBuckets;
  /** Absent when no server is needed for them, or it is the queue's. Rejects when it does not answer. */
  ping?: () => Promise<void>;
  /** Makes all buckets full that this process counts by itself, after their rows were removed. */
  forget(): void;
  stop(): Promise<void>;
}

/**
 * The queue's Redis, or the one of REDIS_URL beside a queue in Postgres; without either, this process counts for
 * itself, and keeps what a restart should not forget in Postgres.
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
