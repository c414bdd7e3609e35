import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Creates a back-off whose pauses become longer with each attempt.
 *
 * @param first milliseconds of the first pause
 * @param longest maximum milliseconds of a pause
 * @param factor ratio of a pause to the one before
 * @returns a function that returns the milliseconds of the next pause
 */
export function backOff(first: number, max: number, factor = 2): () => number {
  let next = first;
  return () => {
    const pause = next;
    next = Math.min(next * factor, max);
    return pause;
  };
}

/** Waits for the given milliseconds or until `leaving` aborts; never rejects. */
export function rest(milliseconds: number, leaving?: AbortSignal): Promise<void> {
  return sleep(milliseconds, undefined, leaving && { signal: leaving }).catch(() => {});
}

interface Until<Seen> {
  /**
   * Milliseconds between two checks, or a function that returns them for each pause, for example `backOff`.
   */
  every: number | (() => number);
  /**
   * Time in `Date.now()` milliseconds after which the next failed check is the last one. If absent, there is
   * no limit.
   */
  deadline?: number;
  /** Returns whether a result fulfils the condition. By default, any truthy result does. */
  isSo?(seen: Seen): boolean;
  /** Called with each result that does not fulfil the condition, before the pause. */
  inVain?(seen: Seen): void;
  /** Ends the wait when it aborts, after one last check. */
  leaving?: AbortSignal;
}

/**
 * Repeats a check until its result fulfils the condition or the deadline has passed. It always checks at
 * least once.
 *
 * @returns the last result
 * @throws the error of the check
 */
export async function until<Seen>(
  check: () => Promise<Seen> | Seen,
  { every, deadline = Number.POSITIVE_INFINITY, isSo = Boolean, inVain, leaving }: Until<Seen>,
): Promise<Seen> {
  for (;;) {
    const seen = await check();
    if (isSo(seen) || leaving?.aborted || Date.now() > deadline) return seen;
    inVain?.(seen);
    await rest(typeof every === 'number' ? every : every(), leaving);
  }
}

/** Maps the interval of a poller to the one that it uses. It is replaced only by `setPollPace`. */
let pace = (every: number) => every;

/** All pollers of this process. */
const pollers = new Set<{ wait(): void; again(): Promise<void> }>();

/**
 * Replaces the intervals of all pollers of this process.
 * @returns a function that restarts all waits. Call it after the intervals have changed
 */
export function setPollPace(paced: (every: number) => number): () => void {
  pace = paced;
  return () => {
    for (const { wait } of pollers) wait();
  };
}

/** Returns the interval that a poller uses, for timers that are not pollers. */
export const pacedInterval = (every: number) => pace(every);

/** Runs each poller of this process once, after its run in progress. Resolves when all have run. */
export async function pollOnce(): Promise<void> {
  await Promise.all([...pollers].map(({ again }) => again()));
}

export interface Poller {
  /** Runs the check immediately, unless it is already running. Never rejects. */
  now(): Promise<void>;
  /** Stops the poller; resolves when the check in progress has ended. */
  stop(): Promise<void>;
}

/**
 * Creates a poller that runs a check at an interval, one at a time. A check that is due while another is
 * running is skipped; otherwise they would accumulate while a store is unavailable. The timer does not keep
 * the process alive.
 *
 * @param failed called with the error of a failed check; the next check runs regardless
 */
export function poll(
  every: number,
  check: () => Promise<void> | void,
  failed: (error: unknown) => void = () => {},
): Poller {
  let inProgress: Promise<void> | undefined;

  async function run(): Promise<void> {
    try {
      await check();
    } catch (error) {
      failed(error);
    }
  }

  function now(): Promise<void> {
    inProgress ??= run().finally(() => {
      inProgress = undefined;
    });
    return inProgress;
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
      await inProgress;
      await now();
    },
  };
  pollers.add(own);
  return {
    now,
    async stop() {
      pollers.delete(own);
      clearTimeout(timer);
      await inProgress;
    },
  };
}

/**
 * Creates a back-off for slow operations: after an operation that took longer than `slowMs`, callers should
 * pause for `BACK_OFF` times its duration, at most `MAX_SLOW_PAUSE_MS`, and after a fast one not at all. (The
 * pauses of `backOff` above grow with each failed attempt.) The object never waits itself: a caller asks `isWaiting` and postpones its
 * read. If the queue is far away, reads without a pause would block all other commands.
 *
 * @param slowMs milliseconds from which on an operation counts as slow
 */
export function createBackOff(slowMs: number) {
  /** End of the pause in `performance.now()` milliseconds. */
  let waitsUntil = 0;

  function after(took: number): void {
    waitsUntil = performance.now() + Math.min(BACK_OFF * took, MAX_SLOW_PAUSE_MS);
  }

  return {
    isWaiting: () => performance.now() < waitsUntil,
    after,
    /**
     * Returns the value, and starts a pause if it arrived slowly; returns undefined if the promise rejects.
     */
    async timed<Value>(promise: Promise<Value>): Promise<Value | undefined> {
      const startedAt = performance.now();
      const value = await promise.catch(() => undefined);
      const took = performance.now() - startedAt;
      if (took > slowMs) after(took);
      return value;
    },
  };
}

/** Ratio of the pause to the duration of the slow operation. */
const BACK_OFF = 4;

/** Maximum pause in milliseconds: an operation can also take long because a server was frozen. */
const MAX_SLOW_PAUSE_MS = 5000;
