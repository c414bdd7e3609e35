import type { Take, TokenBuckets } from '../limits/token-bucket.ts';
import type { BucketName } from '../schemas/limits.ts';
import { buckets as defaults } from '../schemas/limits.ts';
import type { ApiKey } from './known-keys.ts';

/** What a request may tell its caller about the limit; times in epoch seconds and seconds. */
export interface Allowance {
  allowed: boolean;
  limit: number;
  remaining: number;
  /** Epoch seconds at which the whole limit is free again. */
  reset: number;
  /** Seconds until another request is allowed; 0 when this one is. */
  retryAfter: number;
}

interface Batch {
  waiting: ((allowance: Allowance | Error) => void)[];
  running: boolean;
}

/**
 * Takes one token per request. Requests of one bucket that arrive while a take is under way share the next
 * one, which asks for as many tokens as there are requests: one round trip for all of them, and never more
 * granted than the bucket holds.
 */
export function createRateLimiter(buckets: TokenBuckets) {
  const batches = new Map<string, Batch>();

  function take(key: ApiKey, bucket: BucketName): Promise<Allowance> {
    const { requests, windowSeconds } = key.limits[bucket] ?? defaults[bucket];
    const name = `${key.workspaceId}:${bucket}`;
    let batch = batches.get(name);
    if (!batch) {
      batch = { waiting: [], running: false };
      batches.set(name, batch);
    }
    const current = batch;
    return new Promise((resolve, reject) => {
      current.waiting.push((result) => (result instanceof Error ? reject(result) : resolve(result)));
      if (!current.running) void run(name, current, requests, windowSeconds);
    });
  }

  async function run(name: string, batch: Batch, limit: number, windowSeconds: number): Promise<void> {
    batch.running = true;
    while (batch.waiting.length > 0) {
      const asking = batch.waiting;
      batch.waiting = [];
      try {
        share(await buckets.take(name, limit, windowSeconds, asking.length), limit, asking);
      } catch (error) {
        // What waited behind this take would wait as long again; it is refused with it.
        const behind = batch.waiting;
        batch.waiting = [];
        for (const answer of [...asking, ...behind]) answer(error as Error);
      }
    }
    batch.running = false;
  }

  return { take };
}

export type RateLimiter = ReturnType<typeof createRateLimiter>;

/** First come, first served. */
function share(taken: Take, limit: number, asking: ((allowance: Allowance) => void)[]): void {
  const reset = Math.ceil((taken.now + taken.untilFull) / 1000);
  for (let index = 0; index < asking.length; index++) {
    const allowed = index < taken.granted;
    asking[index]!({
      allowed,
      limit,
      remaining: allowed ? taken.left + taken.granted - index - 1 : 0,
      reset,
      retryAfter: allowed ? 0 : Math.max(1, Math.ceil(taken.untilOne / 1000)),
    });
  }
}
