import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Creates a schedule for the requests: without a pause (`rate` 0), or `rate` times a second at even
 * intervals.
 *
 * `next` resolves with the time from which the latency of that request is measured. If all connections were
 * busy when the request was due, that is the due time, so that a slow response also counts for the requests
 * that it delays.
 */
export function createPace(rate: number, start: number, end: number): { next(): Promise<number> | number } {
  if (rate === 0) return { next: () => performance.now() };
  let sent = 0;
  return {
    async next() {
      const due = start + (sent++ * 1000) / rate;
      const early = due - performance.now();
      if (early <= 0) return due;
      await sleep(Math.min(early, end - performance.now()));
      return performance.now();
    },
  };
}
