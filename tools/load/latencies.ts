/** Each bucket is this much wider than the one before: a percentile is right to 1 %. */
const GROWTH = Math.log(1.01);
/** Milliseconds; what is faster counts as this. */
const LEAST = 0.01;
/** Reaches to about 20 minutes. */
const BUCKETS = 1900;

/** Collects durations in milliseconds, any number of them in 15 KB. */
export function createLatencies() {
  const buckets = new Float64Array(BUCKETS);
  let count = 0;
  let longest = 0;

  return {
    add(milliseconds: number): void {
      const bucket = milliseconds <= LEAST ? 0 : Math.ceil(Math.log(milliseconds / LEAST) / GROWTH);
      buckets[Math.min(bucket, BUCKETS - 1)]! += 1;
      count++;
      if (milliseconds > longest) longest = milliseconds;
    },
    /** Undefined when nothing was collected. */
    summary(): LatencySummary | undefined {
      if (count === 0) return undefined;
      return { count, p50: percentile(0.5), p99: percentile(0.99), max: longest };
    },
  };

  function percentile(share: number): number {
    let left = Math.ceil(share * count);
    let bucket = 0;
    while (bucket < BUCKETS - 1 && left > buckets[bucket]!) left -= buckets[bucket++]!;
    return Math.min(LEAST * Math.exp(bucket * GROWTH), longest);
  }
}

/** Milliseconds. */
export interface LatencySummary {
  count: number;
  p50: number;
  p99: number;
  max: number;
}
