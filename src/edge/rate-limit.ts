import type { BucketSize, Take, TokenBuckets } from '../limits/token-buckets.ts';
import type { BucketName } from '../schemas/limits.ts';
import { bucketsOf, rulesOf, type VendorRules } from '../schemas/vendor-rules.ts';
import type { ApiKey } from './key-cache.ts';

/** What a request may tell its caller about the limit; times in epoch seconds and seconds. */
export interface Allowance {
  allowed: boolean;
  limit: number;
  remaining: number;
  /** Epoch seconds at which the whole limit is free again; of a request that is refused, at which one is allowed. With windows of the clock, the end of the window. */
  reset: number;
  /** Seconds until another request is allowed; 0 when this one is. */
  retryAfter: number;
}

interface Bucket {
  waiting: ((allowance: Allowance | Error) => void)[];
  running: boolean;
  /** As the last request had it: a limit that was changed holds from the next take on. */
  size: BucketSize;
  /** What the last take left: in the store, and here for requests to come. */
  left: number;
  ahead: number;
  /** Epoch seconds. */
  reset: number;
  /** Of `performance.now()`: when it was taken. */
  takenAt: number;
  /** Requests that asked since. */
  asked: number;
}

/** Milliseconds for which a busy edge takes tokens ahead, at the rate of its last requests. */
const AHEAD = 100;

/** Fewer save too little to be kept from the other edges. */
const LEAST_AHEAD = 8;

/** Milliseconds over which a rate is measured at least: a few requests at once are no rate. */
const RATE_OVER = 25;

/** Milliseconds after which tokens that were taken ahead are dropped; more than AHEAD, since a rate is an estimate. */
const LEASE = 500;

/** Part of what a bucket holds that one edge takes ahead at most: near its end it keeps nothing from the others. */
const MOST_AHEAD = 1 / 32;

/**
 * One token per request. Requests of one bucket that arrive while a take is under way share the next one. It is one
 * round trip for all of them, and never more is granted than the bucket holds. A busy edge takes some ahead, since a
 * take is a write that the store brings to disk before it answers.
 */
export function createRateLimiter(store: TokenBuckets, rules: VendorRules = rulesOf.spec) {
  const buckets = new Map<string, Bucket>();
  const defaults = bucketsOf(rules);
  const isOnClock = rules.rateWindows === 'clock';

  /** Returns the limit that the workspace of the key has. */
  const sizeOf = (key: ApiKey, bucket: BucketName): BucketSize => key.limits[bucket] ?? defaults[bucket];

  function take(key: ApiKey, bucketName: BucketName): Allowance | Promise<Allowance> {
    const size = sizeOf(key, bucketName);
    const name = `${key.workspaceId}:${bucketName}`;
    let bucket = buckets.get(name);
    if (!bucket) {
      bucket = { waiting: [], running: false, size, left: 0, ahead: 0, reset: 0, takenAt: 0, asked: 0 };
      buckets.set(name, bucket);
    }
    const current = bucket;
    current.asked++;
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
      const asking = bucket.waiting;
      if (asking.length === 0) break;
      bucket.waiting = [];
      const ahead = wantedAhead(bucket);
      bucket.ahead = 0;
      try {
        const taken = await store.take(name, size, asking.length + ahead);
        bucket.left = taken.left;
        bucket.ahead = Math.max(0, taken.granted - asking.length);
        bucket.reset = Math.ceil((taken.now + taken.untilFull) / 1000);
        share(taken, { bucket, limit, isOnClock }, asking);
      } catch (error) {
        // What waited behind this take would wait as long again; it is refused with it.
        const behind = bucket.waiting;
        bucket.waiting = [];
        for (const answer of [...asking, ...behind]) answer(error as Error);
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

/** As many as were asked for in a time as long as AHEAD, or none while there are few. Begins to count again. */
function wantedAhead(bucket: Bucket): number {
  const now = performance.now();
  const perMillisecond = bucket.asked / Math.max(RATE_OVER, now - bucket.takenAt);
  bucket.takenAt = now;
  bucket.asked = 0;
  const wanted = Math.floor(Math.min(perMillisecond * AHEAD, bucket.left * MOST_AHEAD));
  return wanted < LEAST_AHEAD ? 0 : wanted;
}

/** First come, first served. */
function share(
  { granted, left, untilOne, now }: Take,
  { bucket: { ahead, reset }, limit, isOnClock }: { bucket: Bucket; limit: number; isOnClock: boolean },
  asking: ((allowance: Allowance) => void)[],
): void {
  // Both are rounded up: a clock without fractions must not lead anybody here too early.
  const retryAfter = Math.max(1, Math.ceil(untilOne / 1000));
  const retryAt = isOnClock ? reset : Math.ceil(now / 1000) + retryAfter;
  for (let index = 0; index < asking.length; index++) {
    const allowed = index < granted;
    asking[index]!({
      allowed,
      limit,
      remaining: allowed ? left + ahead + Math.min(granted, asking.length) - index - 1 : 0,
      reset: allowed ? reset : retryAt,
      retryAfter: allowed ? 0 : retryAfter,
    });
  }
}
