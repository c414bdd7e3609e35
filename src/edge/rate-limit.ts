import type { BucketSize, Take, TokenBuckets } from '../limits/token-buckets.ts';
import type { BucketName } from '../schemas/limits.ts';
import { bucketsOf, rulesOf, type VendorRules } from '../schemas/vendor-rules.ts';
import type { ApiKey } from './key-cache.ts';

/** The rate limit's result for a request, as sent to the caller; times in epoch seconds and seconds. */
export interface Allowance {
  allowed: boolean;
  limit: number;
  remaining: number;
  /**
   * Epoch seconds at which the whole limit is available again. For a refused request: at which a request is allowed.
   * With clock windows: the end of the window.
   */
  reset: number;
  /** Seconds until another request is allowed; 0 if this one is allowed. */
  retryAfter: number;
}

interface Bucket {
  waiting: ((allowance: Allowance | Error) => void)[];
  running: boolean;
  /** Limit of the last request, so that a changed limit applies from the next take on. */
  size: BucketSize;
  /** Tokens after the last take: left in the store, and taken ahead by this process. */
  left: number;
  ahead: number;
  /** Epoch seconds. */
  reset: number;
  /** Time of the last take, by `performance.now()`. */
  takenAt: number;
  /** Number of requests since then. */
  requests: number;
}

/** Milliseconds for which a busy web process takes tokens ahead, at the rate of its last requests. */
const AHEAD = 100;

/** Minimum number of tokens taken ahead. Fewer would save too little to withhold them from other web processes. */
const MIN_AHEAD = 8;

/**
 * Minimum milliseconds over which a rate is measured, so that a few simultaneous requests do not count as a high
 * rate.
 */
const RATE_OVER = 25;

/** Milliseconds after which tokens taken ahead are dropped. More than AHEAD, because the rate is an estimate. */
const LEASE = 500;

/**
 * Maximum part of the remaining tokens of a bucket that one web process takes ahead. When few tokens remain, the part
 * is too small to take any ahead, so that all web processes can use them.
 */
const MAX_SHARE_AHEAD = 1 / 32;

/**
 * Limits requests by taking one token per request. Requests of one bucket that arrive during a take share the next
 * one, which is one round trip for all of them. It never grants more than the bucket holds. A busy web process takes
 * some tokens ahead, because a take is a write that the store syncs to disk before it answers.
 */
export function createRateLimiter(store: TokenBuckets, rules: VendorRules = rulesOf.spec) {
  const buckets = new Map<string, Bucket>();
  const defaults = bucketsOf(rules);
  const isOnClock = rules.rateWindows === 'clock';

  /** Returns the limit of the key's workspace. */
  const sizeOf = (key: ApiKey, bucket: BucketName): BucketSize => key.limits[bucket] ?? defaults[bucket];

  function take(key: ApiKey, bucketName: BucketName): Allowance | Promise<Allowance> {
    const size = sizeOf(key, bucketName);
    const name = `${key.workspaceId}:${bucketName}`;
    let bucket = buckets.get(name);
    if (!bucket) {
      bucket = { waiting: [], running: false, size, left: 0, ahead: 0, reset: 0, takenAt: 0, requests: 0 };
      buckets.set(name, bucket);
    }
    const current = bucket;
    current.requests++;
    current.size = size;
    if (current.waiting.length === 0 && hasAhead(current)) return takeAhead(current, size.requests);
    return new Promise((resolve, reject) => {
      current.waiting.push((result) => (result instanceof Error ? reject(result) : resolve(result)));
      if (!current.running) void run(name, current);
    });
  }

  async function run(name: string, bucket: Bucket): Promise<void> {
    bucket.running = true;
    while (bucket.waiting.length > 0) {
      const { size } = bucket;
      const limit = size.requests;
      while (bucket.waiting.length > 0 && hasAhead(bucket)) bucket.waiting.shift()!(takeAhead(bucket, limit));
      const waiting = bucket.waiting;
      if (waiting.length === 0) break;
      bucket.waiting = [];
      const ahead = wantedAhead(bucket);
      bucket.ahead = 0;
      try {
        const taken = await store.take(name, size, waiting.length + ahead);
        bucket.left = taken.left;
        bucket.ahead = Math.max(0, taken.granted - waiting.length);
        bucket.reset = Math.ceil((taken.now + taken.untilFull) / 1000);
        share(taken, { bucket, limit, isOnClock }, waiting);
      } catch (error) {
        // Requests that waited for this take would have to wait as long again, so they are refused with it.
        const behind = bucket.waiting;
        bucket.waiting = [];
        for (const answer of [...waiting, ...behind]) answer(error as Error);
      }
    }
    bucket.running = false;
  }

  return { take, sizeOf };
}

export type RateLimiter = ReturnType<typeof createRateLimiter>;

const hasAhead = ({ ahead, takenAt }: Bucket) => ahead > 0 && performance.now() - takenAt < LEASE;

function takeAhead(bucket: Bucket, limit: number): Allowance {
  bucket.ahead--;
  const remaining = bucket.left + bucket.ahead;
  return { allowed: true, limit, remaining, reset: bucket.reset, retryAfter: 0 };
}

/** The number of requests expected within AHEAD, or 0 if there are few. Restarts the count. */
function wantedAhead(bucket: Bucket): number {
  const now = performance.now();
  const perMillisecond = bucket.requests / Math.max(RATE_OVER, now - bucket.takenAt);
  bucket.takenAt = now;
  bucket.requests = 0;
  const wanted = Math.floor(Math.min(perMillisecond * AHEAD, bucket.left * MAX_SHARE_AHEAD));
  return wanted < MIN_AHEAD ? 0 : wanted;
}

/** First come, first served. */
function share(
  { granted, left, untilOne, now }: Take,
  { bucket: { ahead, reset }, limit, isOnClock }: { bucket: Bucket; limit: number; isOnClock: boolean },
  waiting: ((allowance: Allowance) => void)[],
): void {
  // Both are rounded up, so that a client with a clock in whole seconds does not retry too early.
  const retryAfter = Math.max(1, Math.ceil(untilOne / 1000));
  const retryAt = isOnClock ? reset : Math.ceil(now / 1000) + retryAfter;
  for (let index = 0; index < waiting.length; index++) {
    const allowed = index < granted;
    waiting[index]!({
      allowed,
      limit,
      remaining: allowed ? left + ahead + Math.min(granted, waiting.length) - index - 1 : 0,
      reset: allowed ? reset : retryAt,
      retryAfter: allowed ? 0 : retryAfter,
    });
  }
}
