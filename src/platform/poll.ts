import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Back-off: waiting longer before each further try.
 *
 * @param first milliseconds before the first one
 * @param longest milliseconds at most
 * @param factor by how much each wait is longer than the one before
 * @returns gives the milliseconds of the next wait
 */
export function backOff(first: number, longest: number, factor = 2): () => number {
  let next = first;
  return () => {
    const pause = next;
    next = Math.min(next * factor, longest);
    return pause;
  };
}

/** Waits for so many milliseconds, or until `leaving` says to go; never rejects. */
export function rest(milliseconds: number, leaving?: AbortSignal): Promise<void> {
  return sleep(milliseconds, undefined, leaving && { signal: leaving }).catch(() => {});
}

export interface Poller {
  /** Looks at once, unless a look is under way. Never rejects. */
  now(): Promise<void>;
  /** Looks no more; resolves when the look that is under way has ended. */
  stop(): Promise<void>;
}

/**
 * A poller: looks every so many milliseconds, one look at a time. One that is due while another is under way is left
 * out: while a store is away they would gather. It keeps no process from ending.
 *
 * @param failed hears of a look that failed; the next one comes all the same
 */
export function poll(
  every: number,
  look: () => Promise<void> | void,
  failed: (error: unknown) => void = () => {},
): Poller {
  let underWay: Promise<void> | undefined;

  async function lookOnce(): Promise<void> {
    try {
      await look();
    } catch (error) {
      failed(error);
    }
  }

  function now(): Promise<void> {
    underWay ??= lookOnce().finally(() => {
      underWay = undefined;
    });
    return underWay;
  }

  const timer = setInterval(now, every);
  timer.unref();
  return {
    now,
    async stop() {
      clearInterval(timer);
      await underWay;
    },
  };
}
