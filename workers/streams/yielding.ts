import { rest } from '../../src/platform/poll.ts';
import type { LeasedDestination } from '../../src/store/stream-leases.ts';

/**
 * Share of its runnable time that this process must have waited for a processor so that the machine counts as
 * contended.
 */
const CONTENDED_SHARE = 0.25;

/** Milliseconds after which a yielding destination may read a page in any case. */
const PAGE_EVERY_MS = 5000;

/** Milliseconds between two checks whether yielding has ended. */
const YIELD_CHECK_MS = 100;

interface YieldingOptions {
  /** Returns whether more jobs wait in the lanes than the workers are processing. */
  areWorkersBehind(): boolean;
  /**
   * Returns the share of the runnable time spent waiting for a processor, as `share` of `watchProcessorWait`.
   */
  processorWait(): number | undefined;
  /** Lag in milliseconds from which a destination no longer yields; 0 turns yielding off. */
  maxMs: number;
  /** Milliseconds after which a yielding destination may read a page in any case; default 5,000. */
  pageEveryMs?: number;
  /** Called with the milliseconds of each wait. */
  onWait(milliseconds: number): void;
}

/** Returns the current age in milliseconds of the oldest change that is not delivered. */
type Age = () => number;

/** Computes ages with the clock of Postgres at the time of the lease. */
export function agesBy({ leasedAt }: Pick<LeasedDestination, 'leasedAt'>): (at: Date) => Age {
  const startedAt = leasedAt - performance.now();
  return (at) => () => startedAt + performance.now() - at.getTime();
}

/**
 * Delays deliveries in favour of the requests of clients. While workers have a backlog and the processors are
 * contended, each destination reads one page every five seconds, until its lag is too large. A sync process
 * on a machine of its own, with idle processors, never yields.
 */
export function createYielding({
  areWorkersBehind,
  processorWait,
  maxMs,
  pageEveryMs = PAGE_EVERY_MS,
  onWait,
}: YieldingOptions) {
  /** If the system does not report processor waits, the machine counts as shared. */
  const isNeeded = () => maxMs > 0 && areWorkersBehind() && (processorWait() ?? 1) >= CONTENDED_SHARE;

  async function wait({ age, maxAgeMs, until }: WaitLimits, leaving: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    for (let now = startedAt; isNeeded() && now < until && age() < maxAgeMs && !leaving.aborted; ) {
      await rest(Math.max(1, Math.min(YIELD_CHECK_MS, until - now)), leaving);
      now = performance.now();
    }
    const waited = performance.now() - startedAt;
    if (waited >= 1) onWait(waited);
  }

  return {
    isNeeded,
    /**
     * Resolves when a page may be read. All destinations read at the same times, so that one read serves
     * several of them.
     */
    page(age: Age, leaving: AbortSignal): Promise<void> {
      const until = (Math.floor(performance.now() / pageEveryMs) + 1) * pageEveryMs;
      return wait({ age, maxAgeMs: maxMs, until }, leaving);
    },
    /**
     * Resolves when a file may be started, at the latest when its oldest change reaches `gatherMs`, or the
     * maximum age of throttled streams if that is more.
     */
    file(age: Age, gatherMs: number, leaving: AbortSignal): Promise<void> {
      return wait({ age, maxAgeMs: Math.max(gatherMs, maxMs), until: Number.POSITIVE_INFINITY }, leaving);
    },
  };
}

/** Limits of a wait. */
interface WaitLimits {
  age: Age;
  /** Age in milliseconds from which on there is no wait. */
  maxAgeMs: number;
  /** End of the wait, regardless of the age. */
  until: number;
}

export type Yielding = ReturnType<typeof createYielding>;
