import type { Fence } from '../../src/jobs/envelope.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { markOfFence } from '../../src/queue/pack.ts';
import { holdSession } from '../../src/store/connections.ts';
import type { Pool } from '../../src/store/database.ts';
import {
  announceArrival,
  FENCE_CHANNEL,
  type FenceNews,
  openFence,
  parseFenceNews,
  readFence,
} from '../../src/store/fences.ts';
import { readApplied } from '../../src/store/ledger.ts';
import type { WorkerMetrics } from '../metrics.ts';

/** Milliseconds in which the other lanes of this process may come before the store is asked about the rest. */
const GRACE_MS = 2;

/** Milliseconds between two looks into the store; only a notification that was lost makes it that long. */
const POLL_MS = 250;

/** Milliseconds of waiting after which the first lane looks for marks that were damaged in the queue. */
const DAMAGE_MS = 2000;

/** Milliseconds of waiting between two lines about it: longer than the lane of a dead worker stands still. */
const WARN_MS = 30_000;

/**
 * The barrier of one fence: which lanes have come to it, as far as this process knows, and whether it is passed. Both
 * stay true once they are: a lane comes to a fence when everything before it in that lane has taken effect.
 */
function createBarrier() {
  const arrived = new Set<number>();
  const watchers = new Set<() => void>();
  let passed = false;
  /** Lanes of this process that stand here now. */
  let standing = 0;
  let shared = false;

  function tellWatchers(): void {
    for (const look of [...watchers]) look();
  }

  return {
    /** A lane of this process comes to stand here. */
    enter(): void {
      standing++;
    },

    /** It goes. @returns whether none stands here any more */
    leave(): boolean {
      standing--;
      return standing === 0;
    },

    /** Other processes have a part in it, or may have: what becomes of it has to be told in the store. */
    share(): void {
      shared = true;
    },

    isShared: () => shared,
    hasArrived: (lane: number) => arrived.has(lane),
    isPassed: () => passed,

    arrive(lane: number): void {
      if (arrived.has(lane)) return;
      arrived.add(lane);
      tellWatchers();
    },

    pass(): void {
      passed = true;
      tellWatchers();
    },

    /** Resolves when the condition holds, after so many milliseconds, or when `leaving` says so. */
    until(condition: () => boolean, milliseconds: number, leaving: AbortSignal): Promise<void> {
      if (condition() || leaving.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const end = () => {
          clearTimeout(timer);
          watchers.delete(look);
          leaving.removeEventListener('abort', end);
          resolve();
        };
        const look = () => {
          if (condition()) end();
        };
        const timer = setTimeout(end, milliseconds);
        watchers.add(look);
        leaving.addEventListener('abort', end);
      });
    },
  };
}

type Barrier = ReturnType<typeof createBarrier>;

export interface Wait {
  mayGo(): boolean;
  /** Asks the store. */
  ask(): Promise<void>;
  leaving: AbortSignal;
  /** It takes long, and says so. */
  slow(): void;
}

/**
 * Waits in memory alone at first, and then asks the store too, again and again.
 * @returns false: the lane leaves
 */
async function waitAt(barrier: Barrier, { mayGo, ask, leaving, slow }: Wait): Promise<boolean> {
  await barrier.until(mayGo, GRACE_MS, leaving);
  let warned = performance.now();
  // One question at a time; a store that is silent keeps nobody from leaving.
  let asking = false;
  while (!mayGo()) {
    if (leaving.aborted) return false;
    if (!asking) {
      asking = true;
      void ask().finally(() => {
        asking = false;
      });
    }
    await barrier.until(mayGo, POLL_MS, leaving);
    if (performance.now() - warned < WARN_MS) continue;
    warned = performance.now();
    slow();
  }
  return true;
}

export interface Crossing {
  lane: number;
  fence: Fence;
  /** Lets the fence's objects take effect, with its ledger row; called on the first lane alone. */
  apply(): Promise<void>;
  /** The lane is to be given up. */
  leaving: AbortSignal;
}

export interface FencesOptions {
  pool: Pool;
  /** LANES: whatever has no worker any more is not waited for. */
  lanes: number;
  metrics: WorkerMetrics;
  log: Log;
}

/**
 * Lets lanes meet at fences. The first lane of a fence waits until all others have come, and applies; the others
 * wait until that is done. Lanes of one process meet in its memory, at a barrier. Those of several processes meet in
 * the store, by rows, which notifications make fast.
 *
 * It stands on two facts that never become untrue. A lane that has come to a fence has everything behind it that stood
 * before the fence. One of its jobs at a time is in work, and this one is taken last. Whoever works the lane later
 * finds the fence again, not what was before it. And a fence with a ledger row is passed. Therefore:
 * - A worker that dies at a fence leaves its job to another, which comes to the fence again; what the dead one had
 *   announced was right, and right it stays.
 * - A worker that dies between applying and telling so is found out by the ledger, at which waiting lanes look.
 * - A frozen worker that wakes up late, after its lanes have gone to others, knows of arrivals that are still true.
 *   If nobody has applied the fence, all its lanes still stand there, and applying it is right; if somebody has,
 *   the ledger turns it away. As one that only waits it sees the fence passed, and completes a job that is no
 *   longer its own: the queue refuses that.
 * - A fence that is delivered again after it was passed is let through by the ledger, whoever else comes or not.
 * No cyclic wait arises, since all fences stand in one order in all lanes.
 */
export function createFences({ pool, lanes, metrics, log }: FencesOptions) {
  const barriers = new Map<string, Barrier>();

  /** Resolves to false when the lane left before the fence was passed; never rejects, but as `apply` does. */
  async function cross({ lane, fence, apply, leaving }: Crossing): Promise<boolean> {
    const started = performance.now();
    const barrier = barriers.get(fence.id) ?? createBarrier();
    barriers.set(fence.id, barrier);
    barrier.enter();
    try {
      barrier.arrive(lane);
      const first = fence.lanes[0] === lane;
      const others = fence.lanes.filter((other) => other < lanes);
      const mayGo = first
        ? () => barrier.isPassed() || others.every(barrier.hasArrived)
        : () => barrier.isPassed();
      const missing = () => others.filter((other) => !barrier.hasArrived(other));
      const ask = async () => {
        if (!first) return announce(barrier, fence, lane);
        await look(barrier, fence);
        if (performance.now() - started > DAMAGE_MS) await passDamaged(barrier, fence, missing());
      };
      if (!(await waitAt(barrier, { mayGo, ask, leaving, slow: () => warn(fence, lane, missing()) })))
        return false;
      metrics.fenceWaitSeconds.observe((performance.now() - started) / 1000);
      if (first) await pass(barrier, fence, apply);
      return true;
    } finally {
      if (barrier.leave()) barriers.delete(fence.id);
    }
  }

  function warn(fence: Fence, lane: number, missing: number[]): void {
    log.warn({ fence: fence.id, lane, missing }, 'lane has waited long at a fence');
  }

  async function pass(barrier: Barrier, fence: Fence, apply: () => Promise<void>): Promise<void> {
    if (!barrier.isPassed()) {
      await apply();
      metrics.fences.inc();
      barrier.pass();
    }
    if (barrier.isShared()) await trying(fence, () => openFence(pool, fence.id));
  }

  async function look(barrier: Barrier, fence: Fence): Promise<void> {
    barrier.share();
    await trying(fence, async () => {
      const { passed, arrived } = await readFence(pool, fence.id);
      for (const lane of arrived) barrier.arrive(lane);
      if (passed) barrier.pass();
    });
  }

  /**
   * Lets lanes whose mark was damaged in the queue count as arrived. Their worker could not recognize the mark, and made it a
   * dead letter, so the ledger has its id.
   */
  async function passDamaged(barrier: Barrier, fence: Fence, missing: number[]): Promise<void> {
    await trying(fence, async () => {
      const damaged = await readApplied(
        pool,
        missing.map((lane) => markOfFence(fence.id, lane)),
      );
      for (const lane of missing) if (damaged.has(markOfFence(fence.id, lane))) barrier.arrive(lane);
    });
  }

  async function announce(barrier: Barrier, fence: Fence, lane: number): Promise<void> {
    barrier.share();
    await trying(fence, async () => {
      if (await announceArrival(pool, fence.id, lane)) barrier.pass();
    });
  }

  /** What the store does not take now, it is asked for again. */
  async function trying(fence: Fence, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      log.warn({ err: error, fence: fence.id }, 'state of a fence could not be read');
    }
  }

  return {
    cross,
    /** Takes in what another process says; nothing, unless a lane stands at that fence here. */
    hear({ fence, lane }: FenceNews): void {
      const barrier = barriers.get(fence);
      if (!barrier) return;
      barrier.share();
      if (lane === undefined) barrier.pass();
      else barrier.arrive(lane);
    },
  };
}

export type Fences = ReturnType<typeof createFences>;

/** Milliseconds between two tries to listen again. */
const RETRY_MS = 1000;

/** Milliseconds between two questions whether the connection still stands, and the longest wait for the answer. */
const BEAT_MS = 5000;

/**
 * Hears what other workers say about fences, on a connection of its own. It only makes them faster: while there is
 * none, or behind a pooler that lets no session listen, lanes find out by looking into the store.
 */
export function listenForFenceNews(databaseUrl: string, hear: (news: FenceNews) => void, log: Log): Service {
  const stop = holdSession({
    databaseUrl,
    what: 'news of fences',
    patience: BEAT_MS,
    beat: BEAT_MS,
    retry: RETRY_MS,
    async hold(client, { lost }) {
      client.on('notification', ({ channel, payload }) => {
        if (channel === FENCE_CHANNEL && payload) hear(parseFenceNews(payload));
      });
      await client.query(`listen ${FENCE_CHANNEL}`);
      await lost;
    },
    report: (error) =>
      log.warn({ err: error }, 'notifications about fences are unavailable; polling instead'),
  });
  return { name: 'news of fences', stop };
}
