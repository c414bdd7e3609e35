import type { Log } from '../../../src/platform/log.ts';
import { createGroupCommit } from '../../../src/queue/enqueue.ts';
import type { LaneStore } from '../../../src/queue/lane-store.ts';
import { QueueUnavailable } from '../../../src/queue/lanes.ts';
import type { Pool } from '../../../src/store/database.ts';
import { Fences } from '../../../workers/fence/fences.ts';
import type { SnapshotSizes } from '../../../workers/lane/lane-window.ts';
import { LaneWorker } from '../../../workers/lane/lane-worker.ts';
import { Scheduler } from '../../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../../workers/metrics.ts';

/** Milliseconds between two reads of the backlog in web. */
const DEPTH_MS = 250;

export function unavailable(message: string, cause?: unknown): Error {
  return new QueueUnavailable(message, { cause });
}

export { newId } from '../../../src/platform/ids.ts';

export interface WebOptions {
  laneStore: LaneStore;
  lanes: number;
  timeout: number;
  log: Log;
}

/** Starts the part of web that adds accepted objects to the lanes. */
export function startWeb({ laneStore, lanes, timeout, log }: WebOptions) {
  let backlog = 0;
  setInterval(() => {
    void laneStore.waitingInShard(0).then(
      (waiting) => {
        backlog = waiting;
      },
      () => {},
    );
  }, DEPTH_MS);
  return createGroupCommit(laneStore.createProducer({ timeout, log }), {
    lanes,
    maxEnvelopeObjects: 1000,
    maxPendingObjects: 100_000,
    maxPendingBytes: 64 * 1024 * 1024,
    backlog: () => backlog,
  });
}

export interface WorkerOptions {
  laneStore: LaneStore;
  pool: Pool;
  lanes: number;
  processId: string;
  lockDuration: number;
  stalledInterval: number;
  /** Sizes of the snapshots of a lane. Those of the product, if absent. */
  sizes?: SnapshotSizes;
  log: Log;
  onTombstones?(): void;
}

/** Starts a worker, which applies the envelopes of its open lanes. */
export function startWorker({
  laneStore,
  pool,
  lanes,
  processId,
  lockDuration,
  stalledInterval,
  sizes,
  log,
  onTombstones,
}: WorkerOptions) {
  const metrics = createWorkerMetrics();
  const scheduler = new Scheduler(pool, {
    ...{ metrics, log, processId },
    ...(onTombstones && { onTombstones }),
  });
  const fences = new Fences({ pool, layout: { shards: 1, lanes }, metrics, log });
  const config = { LANES: lanes, LOCK_DURATION_MS: lockDuration, STALLED_INTERVAL_MS: stalledInterval };
  const open = new Map<number, LaneWorker>();
  return {
    open(lane: number): void {
      if (!open.has(lane))
        open.set(
          lane,
          new LaneWorker(lane, { laneStore, scheduler, fences, config, log, ...(sizes && { sizes }) }),
        );
    },
    async close(lane: number): Promise<void> {
      const laneWorker = open.get(lane);
      open.delete(lane);
      await laneWorker?.stop();
    },
    isOpen: (lane: number) => open.has(lane),
    /** Stops all lanes. After 6 s, unapplied envelopes are left to other workers. */
    async stop(): Promise<void> {
      setTimeout(() => scheduler.abandon(), 6000);
      await Promise.all([...open.values()].map((lane) => lane.stop()));
      open.clear();
    },
  };
}
