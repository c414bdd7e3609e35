import type { BucketSize, Take, TokenBuckets } from '../limits/token-buckets.ts';
import { Batcher } from '../platform/batcher.ts';
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
  /** Requests that wait for a take. All of them need the same command, so an error of one take rejects all. */
  takes: Batcher<undefined, Allowance>;
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

/** Maximum number of requests that share a take. */
const MAX_TAKEN = 10_000;

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
      const takes = new Batcher<undefined, Allowance>({
        run: (requests) => takeFor(name, bucket!, requests.length),
        maxCalls: MAX_TAKEN,
        bytesOf: () => 0,
        isOutage: () => true,
        // The store collects the takes of all buckets.
        startsAtOnce: true,
      });
      bucket = { takes, size, left: 0, ahead: 0, reset: 0, takenAt: 0, requests: 0 };
      buckets.set(name, bucket);
    }
    bucket.requests++;
    bucket.size = size;
    if (bucket.takes.waiting === 0 && hasAhead(bucket)) return takeAhead(bucket, size.requests);
    return bucket.takes.call(undefined);
  }

  /** Returns the allowances of the first requests: those with tokens taken ahead, or all of them after a take. */
  async function takeFor(name: string, bucket: Bucket, requests: number): Promise<Allowance[]> {
    const { size } = bucket;
    const limit = size.requests;
    const allowances: Allowance[] = [];
    while (allowances.length < requests && hasAhead(bucket)) allowances.push(takeAhead(bucket, limit));
    if (allowances.length > 0) return allowances;
    const ahead = wantedAhead(bucket);
    bucket.ahead = 0;
    const taken = await store.take(name, size, requests + ahead);
    bucket.left = taken.left;
    bucket.ahead = Math.max(0, taken.granted - requests);
    bucket.reset = Math.ceil((taken.now + taken.untilFull) / 1000);
    return share(taken, { bucket, limit, isOnClock }, requests);
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

/** Returns the allowances of requests in the order of their arrival: the first ones get the granted tokens. */
function share(
  { granted, left, untilOne, now }: Take,
  { bucket: { ahead, reset }, limit, isOnClock }: { bucket: Bucket; limit: number; isOnClock: boolean },
  requests: number,
): Allowance[] {
  // Both are rounded up, so that a client with a clock in whole seconds does not retry too early.
  const retryAfter = Math.max(1, Math.ceil(untilOne / 1000));
  const retryAt = isOnClock ? reset : Math.ceil(now / 1000) + retryAfter;
  return Array.from({ length: requests }, (_, index) => {
    const allowed = index < granted;
    return {
      allowed,
      limit,
      remaining: allowed ? left + ahead + Math.min(granted, requests) - index - 1 : 0,
      reset: allowed ? reset : retryAt,
      retryAfter: allowed ? 0 : retryAfter,
    };
  });
}
