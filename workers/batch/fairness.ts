import { within } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import type { Attempts } from './attempts.ts';
import { countObjects, type HandedIn, LARGE, LaneTurns, lanesOf } from './handed-in.ts';
import { type Delivery, workspacesOf } from './open.ts';
import { type BatchResult, PART_MS, type Part, WHOLE } from './parts.ts';
import { applyTogether } from './run.ts';

/** Milliseconds that a transaction rests at one place for those who overtake it: their statement may wait for a lock. */
const LONGEST_REST_MS = 100;

type Way = ReturnType<typeof createWay>;

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
  attempts: Attempts;
  log: Log;
  signal: AbortSignal;
  way: Way;
  report(deliveries: Delivery[], result: BatchResult, milliseconds: number): void;
  hasConnection(): boolean;
  /** Whether something is known against an envelope. */
  isSuspect(id: string): boolean;
}

/**
 * Applies envelopes in a transaction beside those of the coalescer, before their place: they are of other workspaces than
 * all that stands in front of them. One such transaction at a time, tried once: what does not take effect by it still waits.
 */
export function createBeside(options: BesideOptions) {
  const { pool, attempts, log, signal, way, report, hasConnection, isSuspect } = options;
  let isBusy = false;

  const isFree = () => !isBusy && !signal.aborted && hasConnection();

  /** @returns whether all of them have taken effect; undefined: they were not tried, and may be later */
  async function apply(deliveries: Delivery[]): Promise<boolean | undefined> {
    const ids = deliveries.map(({ id }) => id);
    if (!isFree() || ids.some(isSuspect)) return undefined;
    isBusy = true;
    const started = performance.now();
    try {
      await attempts.begin(deliveries);
      if (ids.some(isSuspect)) return false;
      // Each workspace has a transaction of its own where tables lie apart, and what is left would wait behind the flood.
      const shares = (await isDistributed(pool)) ? new Set(deliveries.flatMap(workspacesOf)).size : 1;
      const part = { ...WHOLE, milliseconds: PART_MS * shares };
      const result = await way.during(() => applyTogether(pool, deliveries, part));
      report(deliveries, result, performance.now() - started);
      const isDone = result.kind === 'skipped' || result.left === undefined;
      if (isDone) attempts.end(ids);
      return isDone;
    } catch (error) {
      log.warn({ err: error, envelopes: ids }, 'small jobs could not be applied ahead of their turn');
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
 * few objects of several lanes share a transaction, whose end would be that of the large one. What waits is not passed by
 * what the same workspaces have behind it in its lane.
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
  const waiting = new LaneTurns();
  let objects = 0;
  return free.filter((piece) => {
    const { deliveries, inPlace } = piece;
    const mayGo = !deliveries.flatMap(workspacesOf).some((one) => passed.has(one) || late.has(one));
    if (mayGo && !inPlace && !waiting.meet(piece)) {
      objects += countObjects(deliveries);
      if (objects < LARGE) return true;
    }
    waiting.add(piece);
    return false;
  });
}

/** Whose time was over, over the parts of a coalescer: they go behind the others until nothing is left of theirs. */
export function createLate() {
  /** Those that wait for the longest first. */
  const late = new Set<string>();
  /** Whether the last part was for the others: every second one has a round of those. */
  let wasForOthers = false;
  /** Objects that the last round of theirs could do. */
  let size = 1;

  return {
    late: late as ReadonlySet<string>,

    /** What the next transaction does of what it is given. */
    nextPart(): Omit<Part, 'giveWay'> {
      wasForOthers = late.size > 0 && !wasForOthers;
      return { milliseconds: PART_MS, late: new Set(late), isForOthers: wasForOthers, size };
    },

    note(deliveries: Delivery[], result: BatchResult): void {
      const left = result.kind === 'applied' ? result.left : undefined;
      if (late.size > 0)
        for (const workspace of deliveries.flatMap(workspacesOf))
          if (!left?.workspaces.has(workspace)) late.delete(workspace);
      if (left && left.over.size > 0) size = left.size;
      for (const workspace of left?.over ?? []) {
        late.delete(workspace);
        late.add(workspace);
      }
    },
  };
}

/** Milliseconds for which the next part waits for what lanes hand in. */
const PATIENCE_MS = 500;

/** A lane, which hears of what becomes of its transactions. */
export interface Follower {
  /**
   * A batch of it was cut. It may hand in what waits behind it: others have their turn meanwhile.
   *
   * @param pending ids of the lane's envelopes that are not applied yet
   */
  onCut(pending: ReadonlySet<string>): Promise<void>;
  /** Others overtake a transaction of it: smaller ones let them pass sooner. */
  onOvertaken?(): void;
}

/** The lanes that follow a coalescer. */
export function createFollowers() {
  const followers = new Map<number, Follower>();

  return {
    follow(lane: number, follower: Follower): void {
      followers.set(lane, follower);
    },

    /** Lets the lanes hand in what waits behind these, of all that is `held`. */
    async tellCut(left: HandedIn[], held: HandedIn[]): Promise<void> {
      const cut = new Set(left.flatMap(lanesOf));
      const hearings = [...cut].map(async (lane) => {
        const pending = held.flatMap(({ deliveries }) => deliveries.filter((one) => one.lane === lane));
        await followers.get(lane)?.onCut(new Set(pending.map(({ id }) => id)));
      });
      await within(PATIENCE_MS, Promise.all(hearings)).catch(() => {});
    },

    tellOvertaken(lanes: Iterable<number>): void {
      for (const lane of lanes) followers.get(lane)?.onOvertaken?.();
    },
  };
}
