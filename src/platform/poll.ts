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

export interface Until<Seen> {
  /** Milliseconds between two looks, or what gives them anew each time: `backOff`. */
  every: number | (() => number);
  /** By `Date.now()`: a look that is in vain behind it is the last one. Absent: there is no such time. */
  deadline?: number;
  /** Whether that is what is waited for; unless told, whether it is anything. */
  isSo?(seen: Seen): boolean;
  /** Hears of what was seen in vain, before each wait. */
  inVain?(seen: Seen): void;
  /** Ends the wait; the next look is the last one. */
  leaving?: AbortSignal;
}

/**
 * Looks again and again until it is so, or the deadline has passed; once in any case.
 *
 * @returns what was seen last
 * @throws what a look throws
 */
export async function until<Seen>(
  look: () => Promise<Seen> | Seen,
  { every, deadline = Number.POSITIVE_INFINITY, isSo = Boolean, inVain, leaving }: Until<Seen>,
): Promise<Seen> {
  for (;;) {
    const seen = await look();
    if (isSo(seen) || leaving?.aborted || Date.now() > deadline) return seen;
    inVain?.(seen);
    await rest(typeof every === 'number' ? every : every(), leaving);
  }
}

/** Milliseconds that a poller waits instead of its own. */
let pace = (every: number) => every;

/** The pollers of this process. */
const pollers = new Set<{ wait(): void; again(): Promise<void> }>();

/**
 * Lets all pollers of this process wait for other times than their own.
 * @returns starts all of their waits again, after the times have changed
 */
export function paceLooks(paced: (every: number) => number): () => void {
  pace = paced;
  return () => {
    for (const { wait } of pollers) wait();
  };
}

/** Lets all pollers of this process look once, after the looks that have begun. Resolves when all have looked. */
export async function lookOnce(): Promise<void> {
  await Promise.all([...pollers].map(({ again }) => again()));
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

  async function run(): Promise<void> {
    try {
      await look();
    } catch (error) {
      failed(error);
    }
  }

  function now(): Promise<void> {
    underWay ??= run().finally(() => {
      underWay = undefined;
    });
    return underWay;
  }

  let timer: NodeJS.Timeout | undefined;
  function wait(): void {
    clearTimeout(timer);
    timer = setTimeout(() => {
      wait();
      void now();
    }, pace(every)).unref();
  }
  wait();
  const own = {
    wait,
    async again() {
      await underWay;
      await now();
    },
  };
  pollers.add(own);
  return {
    now,
    async stop() {
      pollers.delete(own);
      clearTimeout(timer);
      await underWay;
    },
  };
}

/**
 * Back-off after what was slow, not after what was in vain: a pause of so many times what it took, and none behind what was
 * quick. `backOff`, above, is the other one, whose pauses grow with each try. Nobody waits here: whoever
 * would read asks, and reads later. Where the queue is far away, reads without a pause would keep everything else from it.
 *
 * @param slowMs milliseconds from which on something was slow
 */
export function createBackOff(slowMs: number) {
  /** By `performance.now()`. */
  let waitsUntil = 0;

  function after(took: number): void {
    waitsUntil = performance.now() + BACK_OFF * took;
  }

  return {
    isWaiting: () => performance.now() < waitsUntil,
    after,
    /** The value, and a pause from then on if it came slowly; undefined when the promise is rejected. */
    async timed<Value>(promise: Promise<Value>): Promise<Value | undefined> {
      const begun = performance.now();
      const value = await promise.catch(() => undefined);
      const took = performance.now() - begun;
      if (took > slowMs) after(took);
      return value;
    },
  };
}

/** The pause is so many times as long as what was slow. */
const BACK_OFF = 4;
