import type { Fence } from '../src/jobs/envelope.ts';
import type { Log } from '../src/log.ts';
import type { Pool } from '../src/store/database.ts';
import { announceArrival } from '../src/store/fences/announce-arrival.ts';
import type { FenceNews } from '../src/store/fences/fence-news.ts';
import { openFence } from '../src/store/fences/open-fence.ts';
import { readFence } from '../src/store/fences/read-fence.ts';
import { createMeeting, type Meeting, waitAt } from './meeting.ts';
import type { WorkerMetrics } from './metrics.ts';

export interface Crossing {
  lane: number;
  fence: Fence;
  /** Lets the fence's objects take effect, with its ledger row; called on the first lane alone. */
  apply(): Promise<void>;
  /** The lane is to be given up. */
  leaving: AbortSignal;
}

/**
 * Lets lanes meet at fences. The first lane of a fence waits until all others have come, and applies; the others
 * wait until that is done. Lanes that one process works meet in its memory; those of several processes meet in the
 * store, by rows, which notifications make fast.
 *
 * It stands on two facts that never become untrue. A lane that has come to a fence has everything behind it that
 * stood before the fence, since one of its jobs at a time is in work and this one is taken last; whoever works the
 * lane later finds the fence again, not what was before it. And a fence with a ledger row is passed. Therefore:
 * - A worker that dies at a fence leaves its job to another, which comes to the fence again; what the dead one had
 *   announced was right, and right it stays.
 * - A worker that dies between applying and telling so is found out by the ledger, at which waiting lanes look.
 * - A frozen worker that wakes up late, after its lanes have gone to others, knows of arrivals that are still true.
 *   If nobody has applied the fence, all its lanes still stand there, and applying it is right; if somebody has,
 *   the ledger turns it away. As one that only waits it sees the fence passed, and completes a job that is no
 *   longer its own: the queue refuses that.
 * - A fence that is delivered again after it was passed is let through by the ledger, whoever else comes or not.
 * No cyclic wait arises, since all fences stand in one order in all lanes.
 *
 * @param lanes LANES: whatever has no worker any more is not waited for
 */
export function createFences(pool: Pool, lanes: number, metrics: WorkerMetrics, log: Log) {
  const meetings = new Map<string, Meeting>();

  /** Resolves to false when the lane left before the fence was passed; never rejects, but as `apply` does. */
  async function cross({ lane, fence, apply, leaving }: Crossing): Promise<boolean> {
    const started = performance.now();
    const meeting = meetings.get(fence.id) ?? createMeeting();
    meetings.set(fence.id, meeting);
    meeting.standing++;
    try {
      meeting.arrive(lane);
      const first = fence.lanes[0] === lane;
      const others = fence.lanes.filter((other) => other < lanes);
      const mayGo = first
        ? () => meeting.isPassed() || others.every(meeting.hasArrived)
        : () => meeting.isPassed();
      const ask = () => (first ? look(meeting, fence) : announce(meeting, fence, lane));
      const missing = () => others.filter((other) => !meeting.hasArrived(other));
      if (!(await waitAt(meeting, { mayGo, ask, leaving, slow: () => warn(fence, lane, missing()) })))
        return false;
      metrics.fenceWaitSeconds.observe((performance.now() - started) / 1000);
      if (first) await pass(meeting, fence, apply);
      return true;
    } finally {
      meeting.standing--;
      if (meeting.standing === 0) meetings.delete(fence.id);
    }
  }

  function warn(fence: Fence, lane: number, missing: number[]): void {
    log.warn({ fence: fence.id, lane, missing }, 'a lane waits long at a fence');
  }

  async function pass(meeting: Meeting, fence: Fence, apply: () => Promise<void>): Promise<void> {
    if (!meeting.isPassed()) {
      await apply();
      metrics.fences.inc();
      meeting.pass();
    }
    if (meeting.isShared) await trying(fence, () => openFence(pool, fence.id));
  }

  async function look(meeting: Meeting, fence: Fence): Promise<void> {
    meeting.isShared = true;
    await trying(fence, async () => {
      const { passed, arrived } = await readFence(pool, fence.id);
      for (const lane of arrived) meeting.arrive(lane);
      if (passed) meeting.pass();
    });
  }

  async function announce(meeting: Meeting, fence: Fence, lane: number): Promise<void> {
    meeting.isShared = true;
    await trying(fence, async () => {
      if (await announceArrival(pool, fence.id, lane)) meeting.pass();
    });
  }

  /** What the store does not take now, it is asked for again. */
  async function trying(fence: Fence, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      log.warn({ err: error, fence: fence.id }, 'the store did not answer about a fence');
    }
  }

  return {
    cross,
    /** Takes in what another process says; nothing, unless a lane stands at that fence here. */
    hear({ fence, lane }: FenceNews): void {
      const meeting = meetings.get(fence);
      if (!meeting) return;
      meeting.isShared = true;
      if (lane === undefined) meeting.pass();
      else meeting.arrive(lane);
    },
  };
}

export type Fences = ReturnType<typeof createFences>;
