import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import type { BatchResult } from './failures.ts';
import type { Delivery } from './open.ts';
import { countObjects, type HandedIn, PART_MS, WHOLE, workspacesOf } from './parts.ts';
import { applyTogether } from './run.ts';

/**
 * Objects that are worth a transaction of their own beside one that is running. With as many, a transaction's round
 * trips and its COMMIT cost little, and this process works on one while Postgres works on the other. Fewer wait for it
 * to end, and share the next one, unless they overtake it.
 */
export const LARGE = 200;

/** Milliseconds that a transaction rests at one place for those who overtake it: their statement may wait for a lock. */
const LONGEST_REST_MS = 100;

export type Way = ReturnType<typeof createWay>;

/**
 * Gives way: while somebody overtakes, large transactions of this process rest between two of their steps. They share a
 * thread, a disk, and mostly the processors of Postgres.
 */
export function createWay() {
  let overtaking = 0;
  const resting = new Set<() => void>();

  return {
    /** Large transactions rest until it is over. */
    async during<Value>(work: () => Promise<Value>): Promise<Value> {
      overtaking++;
      try {
        return await work();
      } finally {
        overtaking--;
        if (overtaking === 0) for (const goOn of [...resting]) goOn();
      }
    },

    /** Resolves when who overtakes now is done, or has taken long. Undefined: nobody does. */
    give(): Promise<void> | undefined {
      if (overtaking === 0) return undefined;
      return new Promise((resolve) => {
        const goOn = () => {
          clearTimeout(timer);
          resting.delete(goOn);
          resolve();
        };
        const timer = setTimeout(goOn, LONGEST_REST_MS);
        resting.add(goOn);
      });
    },
  };
}

interface BesideOptions {
  pool: Pool;
  log: Log;
  signal: AbortSignal;
  way: Way;
  report(deliveries: Delivery[], result: BatchResult, milliseconds: number): void;
  hasConnection(): boolean;
  /** Whether something is known against an envelope. */
  isSuspect(id: string): boolean;
}

export type Beside = ReturnType<typeof createBeside>;

/**
 * Applies envelopes in a transaction beside those of the coalescer, before their place: they are of other workspaces than
 * all that stands in front of them. One such transaction at a time, tried once: what does not take effect by it still waits.
 */
export function createBeside(options: BesideOptions) {
  const { pool, log, signal, way, report, hasConnection, isSuspect } = options;
  let isBusy = false;

  const isFree = () => !isBusy && !signal.aborted && hasConnection();

  /** @returns whether all of them have taken effect; undefined: they were not tried, and may be later */
  async function apply(deliveries: Delivery[]): Promise<boolean | undefined> {
    const ids = deliveries.map(({ id }) => id);
    if (!isFree() || ids.some(isSuspect)) return undefined;
    isBusy = true;
    const started = performance.now();
    try {
      // Each workspace has a transaction of its own where tables lie apart, and what is left would wait behind the flood.
      const shares = (await isDistributed(pool)) ? new Set(deliveries.flatMap(workspacesOf)).size : 1;
      const part = { ...WHOLE, milliseconds: PART_MS * shares };
      const result = await way.during(() => applyTogether(pool, deliveries, part));
      report(deliveries, result, performance.now() - started);
      return result.kind === 'skipped' || result.left === undefined;
    } catch (error) {
      log.warn({ err: error, envelopes: ids }, 'not applied before its place in the lane');
      return false;
    } finally {
      isBusy = false;
    }
  }

  return {
    apply,
    /** Whether one may be begun. To be asked before what could be applied is read: that is up to some megabytes. */
    isFree,
  };
}

/**
 * Those who need not wait for the transactions under way: one of these is large, and none is about their workspaces. A
 * few objects of several lanes share a transaction, whose end would be that of the large one.
 *
 * @param given.inWork envelopes of each transaction under way
 * @param given.late workspaces whose time was over: they wait for a part of theirs
 */
export function whoMayOvertake(
  free: HandedIn[],
  { inWork, late }: { inWork: ReadonlySet<Delivery[]>; late: ReadonlySet<string> },
): HandedIn[] {
  const all = [...inWork];
  if (!all.some((deliveries) => countObjects(deliveries) >= LARGE)) return [];
  const passed = new Set(all.flatMap((deliveries) => deliveries.flatMap(workspacesOf)));
  let objects = 0;
  return free.filter(({ deliveries }) => {
    if (deliveries.flatMap(workspacesOf).some((one) => passed.has(one) || late.has(one))) return false;
    objects += countObjects(deliveries);
    return objects < LARGE;
  });
}
