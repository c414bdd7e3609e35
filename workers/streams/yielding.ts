import { rest } from '../../src/platform/poll.ts';
import type { LeasedDestination } from '../../src/store/stream-leases.ts';

/** Of the time in which this process wants to run, the part that it waits for others, from which on it takes it from them. */
const CONTENDED = 0.25;

/** Milliseconds after which a destination gets a page all the same, while it gives way. */
const PAGE_EVERY_MS = 5000;

/** Milliseconds between two looks whether that is over. */
const LOOK_MS = 100;

export interface YieldingOptions {
  /** Whether more waits in the lanes than workers have in hand. */
  areWorkersBehind(): boolean;
  /** As `share` of `watchProcessorWait`. */
  processorWait(): number | undefined;
  /** A destination that is so many milliseconds behind has its share, whatever waits in the lanes; 0: all always have. */
  mostMs: number;
  /** Milliseconds after which a destination gets a page all the same; 5,000 unless told. */
  pageEveryMs?: number;
  /** Hears how many milliseconds somebody has waited. */
  onWait(milliseconds: number): void;
}

/** Milliseconds since the oldest thing that is to be told took effect, now. */
export type Age = () => number;

/** Ages by the clock of Postgres, which the lease came with. */
export function agesBy({ leasedAt }: Pick<LeasedDestination, 'leasedAt'>): (at: Date) => Age {
  const begun = leasedAt - performance.now();
  return (at) => () => begun + performance.now() - at.getTime();
}

/**
 * Gives way to what clients send. While workers are behind and there is no processor to spare, destinations get a page
 * every five seconds each, until they are too far behind. On a machine of its own, with time to spare, a sync process
 * never does.
 */
export function createYielding({
  areWorkersBehind,
  processorWait,
  mostMs,
  pageEveryMs = PAGE_EVERY_MS,
  onWait,
}: YieldingOptions) {
  /** Where the system does not tell, they are taken to share a machine. */
  const isNeeded = () => mostMs > 0 && areWorkersBehind() && (processorWait() ?? 1) >= CONTENDED;

  async function wait({ age, longest, until }: Waiting, leaving: AbortSignal): Promise<void> {
    const begun = performance.now();
    for (let now = begun; isNeeded() && now < until && age() < longest && !leaving.aborted; ) {
      await rest(Math.max(1, Math.min(LOOK_MS, until - now)), leaving);
      now = performance.now();
    }
    const waited = performance.now() - begun;
    if (waited >= 1) onWait(waited);
  }

  return {
    isNeeded,
    /** Resolves when a page may be read. All have theirs at the same moments: what one reads then serves the others. */
    page(age: Age, leaving: AbortSignal): Promise<void> {
      const until = (Math.floor(performance.now() / pageEveryMs) + 1) * pageEveryMs;
      return wait({ age, longest: mostMs, until }, leaving);
    },
    /** Resolves when a file may be begun: at the latest when what it has to gather is as old as it may be. */
    file(age: Age, gatherMs: number, leaving: AbortSignal): Promise<void> {
      return wait({ age, longest: Math.max(gatherMs, mostMs), until: Number.POSITIVE_INFINITY }, leaving);
    },
  };
}

interface Waiting {
  age: Age;
  /** Milliseconds of age from which on nobody waits. */
  longest: number;
  /** When it is over, whatever the age. */
  until: number;
}

export type Yielding = ReturnType<typeof createYielding>;
