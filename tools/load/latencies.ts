/** Logarithm of the ratio between two buckets. Percentiles are accurate to 1 %. */
const GROWTH = Math.log(1.01);
/** Milliseconds of the first bucket, which also counts shorter durations. */
const MIN_MS = 0.01;
/** Number of buckets, which is enough for about 20 minutes. */
const BUCKETS = 1900;

/** Creates a histogram of durations in milliseconds, which takes 15 KB for any number of them. */
export function createLatencies() {
  const buckets = new Float64Array(BUCKETS);
  let count = 0;
  let longest = 0;

  return {
    add(milliseconds: number): void {
      const bucket = milliseconds <= MIN_MS ? 0 : Math.ceil(Math.log(milliseconds / MIN_MS) / GROWTH);
      buckets[Math.min(bucket, BUCKETS - 1)]! += 1;
      count++;
      if (milliseconds > longest) longest = milliseconds;
    },
    /** Returns undefined if no duration was added. */
    summary(): LatencySummary | undefined {
      if (count === 0) return undefined;
      return { count, p50: percentile(0.5), p99: percentile(0.99), max: longest };
    },
  };

  function percentile(share: number): number {
    let left = Math.ceil(share * count);
    let bucket = 0;
    while (bucket < BUCKETS - 1 && left > buckets[bucket]!) left -= buckets[bucket++]!;
    return Math.min(MIN_MS * Math.exp(bucket * GROWTH), longest);
  }
}

/** Durations in milliseconds. */
export interface LatencySummary {
  count: number;
  p50: number;
  p99: number;
  max: number;
}
