import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Says when to send the next request: at once (`rate` 0), or `rate` times a second, evenly.
 *
 * `next` resolves with the time from which that request's wait is measured: the moment at which it was due
 * when all connections were busy then, so that a slow answer counts for the requests that it held up too.
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
