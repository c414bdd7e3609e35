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

/** Milliseconds for the other lanes of this process to arrive, before Postgres is queried for the remaining lanes. */
const GRACE_MS = 2;

/** Milliseconds between two queries to Postgres; a wait lasts this long only if a notification was lost. */
const POLL_MS = 250;

/** Milliseconds of waiting after which the first lane checks for fence marks that were damaged in the queue. */
const DAMAGE_MS = 2000;

/** Milliseconds of waiting between two log lines: longer than the lane of a dead worker is idle. */
const WARN_MS = 30_000;

/**
 * Creates the barrier of one fence: which lanes have arrived, as far as this process knows, and whether the fence has
 * been passed. Both facts are permanent: a lane arrives at a fence when all its earlier jobs have taken effect.
 */
function createBarrier() {
  const arrived = new Set<number>();
  const watchers = new Set<() => void>();
  let passed = false;
  /** Number of lanes of this process that wait here now. */
  let standing = 0;
  let shared = false;

  function notifyWatchers(): void {
    for (const notify of [...watchers]) notify();
  }

  return {
    /** Counts a lane of this process that starts to wait here. */
    enter(): void {
      standing++;
    },

    /** Counts a lane that stops waiting. @returns whether it was the last one of this process */
    leave(): boolean {
      standing--;
      return standing === 0;
    },

    /** Marks the barrier as possibly shared with other processes, so that its state has to be written to Postgres. */
    share(): void {
      shared = true;
    },

    isShared: () => shared,
    hasArrived: (lane: number) => arrived.has(lane),
    isPassed: () => passed,

    arrive(lane: number): void {
      if (arrived.has(lane)) return;
      arrived.add(lane);
      notifyWatchers();
    },

    pass(): void {
      passed = true;
      notifyWatchers();
    },

    /** Resolves when the condition holds, the given milliseconds have passed, or `leaving` aborts. */
    until(condition: () => boolean, milliseconds: number, leaving: AbortSignal): Promise<void> {
      if (condition() || leaving.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const end = () => {
          clearTimeout(timer);
          watchers.delete(notify);
          leaving.removeEventListener('abort', end);
          resolve();
        };
        const notify = () => {
          if (condition()) end();
        };
        const timer = setTimeout(end, milliseconds);
        watchers.add(notify);
        leaving.addEventListener('abort', end);
      });
    },
  };
}

type Barrier = ReturnType<typeof createBarrier>;

interface Wait {
  mayGo(): boolean;
  /** Updates the barrier from Postgres; never rejects. */
  poll(): Promise<void>;
  leaving: AbortSignal;
  /** Called after each WARN_MS of waiting. */
  slow(): void;
}

/**
 * Waits until the lane may go: first for other lanes of this process only, then also by polling Postgres.
 *
 * @returns false if the lane has to be given up
 */
async function waitAt(barrier: Barrier, { mayGo, poll, leaving, slow }: Wait): Promise<boolean> {
  await barrier.until(mayGo, GRACE_MS, leaving);
  let warned = performance.now();
  // Only one query runs at a time. It is not awaited, so that a lane can leave while Postgres does not answer.
  let isPolling = false;
  while (!mayGo()) {
    if (leaving.aborted) return false;
    if (!isPolling) {
      isPolling = true;
      void poll().finally(() => {
        isPolling = false;
      });
    }
    await barrier.until(mayGo, POLL_MS, leaving);
    if (performance.now() - warned < WARN_MS) continue;
    warned = performance.now();
    slow();
  }
  return true;
}

interface Crossing {
  lane: number;
  fence: Fence;
  /** Applies the fence's objects together with its ledger row; called on the first lane only. */
  apply(): Promise<void>;
  /** Aborted when the lane has to be given up. */
  leaving: AbortSignal;
}

interface FencesOptions {
  pool: Pool;
  /** Number of lanes, from LANES. A fence does not wait for lanes beyond it, since they have no worker. */
  lanes: number;
  metrics: WorkerMetrics;
  log: Log;
}

/**
 * Synchronizes lanes at fences. The first lane of a fence waits until all other lanes have arrived and then applies the
 * fence; the others wait until it has been applied. Lanes of one process meet at a barrier in its memory. Lanes of
 * several processes meet through rows in Postgres; notifications make this fast.
 *
 * Correctness rests on two permanent facts. First, when a lane has arrived at a fence, all earlier jobs of the lane
 * have taken effect: the lane has one active job at a time and reaches the fence last. A later worker of the lane finds
 * the fence again, not the jobs before it. Second, a fence with a ledger row has been passed. Therefore:
 * - If a worker dies at a fence, another worker gets its job and arrives at the fence again. The arrival that the dead
 *   worker announced was true and stays true.
 * - If a worker dies after it has applied a fence but before it has announced that, waiting lanes find the ledger row.
 * - A frozen worker that resumes after its lanes have moved to other workers knows arrivals that are still true. If the
 *   fence has not been applied, all its lanes still wait there, and applying it is correct; otherwise, the ledger
 *   rejects the second application. If the worker only waits, it sees that the fence has been passed and completes a
 *   job that it no longer holds, which the queue refuses.
 * - A fence that is delivered again after it was passed is skipped because of its ledger row, whether or not other
 *   lanes arrive.
 * A cyclic wait is impossible, since all lanes contain the fences in the same order.
 */
export function createFences({ pool, lanes, metrics, log }: FencesOptions) {
  const barriers = new Map<string, Barrier>();

  /** Resolves to false if the lane left before the fence was passed; rejects only if `apply` rejects. */
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
      const poll = async () => {
        if (!first) return announce(barrier, fence, lane);
        await refresh(barrier, fence);
        if (performance.now() - started > DAMAGE_MS) await passDamaged(barrier, fence, missing());
      };
      if (!(await waitAt(barrier, { mayGo, poll: poll, leaving, slow: () => warn(fence, lane, missing()) })))
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

  async function refresh(barrier: Barrier, fence: Fence): Promise<void> {
    barrier.share();
    await trying(fence, async () => {
      const { passed, arrived } = await readFence(pool, fence.id);
      for (const lane of arrived) barrier.arrive(lane);
      if (passed) barrier.pass();
    });
  }

  /**
   * Counts lanes whose fence mark was damaged in the queue as arrived. Their worker could not recognize the mark and
   * turned it into a dead letter, so the ledger has its id.
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

  /** Runs a query and logs its failure; the waiting lane repeats it. */
  async function trying(fence: Fence, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      log.warn({ err: error, fence: fence.id }, 'state of a fence could not be read');
    }
  }

  return {
    cross,
    /** Handles a notification of another process; has no effect unless a lane of this process waits at that fence. */
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

/** Milliseconds between two attempts to reconnect. */
const RETRY_MS = 1000;

/** Milliseconds between two checks of the connection, and the maximum wait for the reply. */
const BEAT_MS = 5000;

/**
 * Listens for notifications of other workers about fences, on a dedicated connection. Notifications only reduce
 * latency: without the connection, or with a pooler that does not support LISTEN, lanes poll Postgres.
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
