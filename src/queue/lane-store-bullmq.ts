import { backOff, rest } from '../platform/poll.ts';
import { type Queue, WaitingError, Worker } from './bullmq.ts';
import { limitLane, openLane, optionsOfLane, type QueueAccess, removeFinished } from './bullmq-queues.ts';
import { createLaneProducer } from './lane-producer.ts';
import type {
  LaneStore,
  LaneWorker,
  Lease,
  LeaseHandler,
  LeaseOptions,
  OldestEnvelope,
  StoredEnvelope,
} from './lane-store.ts';
import { laneName } from './lanes.ts';
import { NOT_RUNNING, runWorker } from './open-worker.ts';
import type { WireEnvelope } from './wire.ts';

export type LaneQueue = Queue<WireEnvelope>;

/** What BullMQ does not offer, or not at the price that the lanes need: each server is asked in its own language. */
export interface LaneBackend {
  head(queue: LaneQueue, most: number): Promise<string[]>;
  window(queue: LaneQueue, lease: Lease, most: number): Promise<string[] | undefined>;
  read(queue: LaneQueue, ids: string[], bytes: number): Promise<(StoredEnvelope | undefined)[]>;
  complete(queue: LaneQueue, lease: Lease, ids: string[]): Promise<boolean>;
  oldest(queue: LaneQueue): Promise<OldestEnvelope | undefined>;
  endLease(queue: LaneQueue): Promise<void>;
  /** Over lanes of one shard. */
  countWaiting(queues: LaneQueue[]): Promise<number>;
  oldestOf(queues: LaneQueue[]): Promise<number | undefined>;
}

/** States of the envelopes that are still to be applied. */
const PRESENT = ['waiting', 'active'] as const;

/** Lanes as queues of BullMQ, which both stores share. */
export function createLaneStore(access: QueueAccess, backend: LaneBackend): LaneStore {
  const { layout } = access;
  /** By lane, as far as one was needed. They share the connection, and end with it. */
  const queues: LaneQueue[] = [];

  function queueOf(lane: number): LaneQueue {
    queues[lane] ??= openLane<WireEnvelope>(access, lane);
    return queues[lane];
  }

  const queuesOf = (shard: number) =>
    Array.from({ length: layout.lanes }, (_, lane) => queueOf(shard * layout.lanes + lane));

  const remove = async (lane: number, id: string) =>
    void (await queueOf(lane).remove(id, { removeChildren: false }));

  return {
    layout,
    ready: () => access.ready(),
    createProducer: ({ timeout, log }) => createLaneProducer(access, timeout, log),

    limit: (lane) => limitLane(access, lane),
    isLimited: async (lane) => (await queueOf(lane).getGlobalConcurrency()) === 1,

    lease: (lane, handler, options) => leaseLane(access, { lane, handler, remove, ...options }),
    endLease: (lane) => backend.endLease(queueOf(lane)),

    head: (lane, most) => backend.head(queueOf(lane), most),
    window: (lease, most) => backend.window(queueOf(lease.lane), lease, most),
    read: (lane, ids, bytes = Number.MAX_SAFE_INTEGER) => backend.read(queueOf(lane), ids, bytes),
    complete: (lease, ids) => backend.complete(queueOf(lease.lane), lease, ids),

    async depth(lane) {
      const { waiting = 0, active = 0 } = await queueOf(lane).getJobCounts(...PRESENT);
      return { waiting, active };
    },
    waitingInShard: (shard) => backend.countWaiting(queuesOf(shard)),
    oldest: (lane) => backend.oldest(queueOf(lane)),
    oldestInShard: (shard) => backend.oldestOf(queuesOf(shard)),
    async find(lane, [from, to]) {
      // What is handed out meanwhile is found where it comes to, since that is looked at last.
      const ids = await queueOf(lane).getRanges([...PRESENT], 0, -1);
      return ids.filter((id) => id >= from && id <= to).sort();
    },
    isPaused: (lane) => queueOf(lane).isPaused(),

    failed: (lane, most) => queueOf(lane).getRanges(['failed'], 0, most - 1, true),
    remove,
    forgetFinished: (lane) => removeFinished(queueOf(lane)),
  };
}

/** BullMQ gives a job up for good that stalls more often than this; ours are never given up. */
const MAX_STALLED = 1_000_000;

/** Seconds that an idle lane waits for its next job: also the longest sleep after a graceful hand-over. */
const DRAIN_DELAY = 0.5;

/** Milliseconds before the lane asks again after an error of the queue. */
const RUN_RETRY_DELAY = 250;

/** Times that a job which has taken effect is removed at most, and milliseconds between them; then it is left to the upkeep. */
const MOST_REMOVALS = 6;
const FIRST_REMOVAL_MS = 50;
const LONGEST_REMOVAL_MS = 800;

/** Milliseconds between two lines about a queue that does not answer. */
const WARN_INTERVAL = 5000;

interface Leasing extends LeaseOptions {
  lane: number;
  handler: LeaseHandler;
  remove(lane: number, id: string): Promise<void>;
}

/**
 * A lane's worker of BullMQ. What is finished is told to the queue in the command that fetches the next job. What is
 * given back goes to the head of the lane: BullMQ puts it where jobs are taken next on Redis; on Postgres it keeps its
 * place in the order.
 */
function leaseLane(
  access: QueueAccess,
  { lane, handler, remove, lockDuration, stalledInterval, log }: Leasing,
): LaneWorker {
  const stop = new AbortController();

  /** The last job that was finished; the queue may not know of it yet. */
  let lastFinished: string | undefined;

  /** The connection that broke when it was to be completed may break again. */
  async function removeFinishedJob(id: string): Promise<void> {
    const nextWait = backOff(FIRST_REMOVAL_MS, LONGEST_REMOVAL_MS);
    for (let times = 0; times < MOST_REMOVALS; times++) {
      await rest(times === 0 ? 0 : nextWait(), stop.signal);
      if (stop.signal.aborted) return;
      try {
        // Of one that is gone nothing is said: an answer that got lost may have been that of its removal.
        return await remove(lane, id);
      } catch (error) {
        log.debug({ err: error, lane, job: id }, 'a job that has taken effect is not removed yet');
      }
    }
  }

  let warned = Number.NEGATIVE_INFINITY;

  function openWorker() {
    const opened = new Worker<WireEnvelope>(
      laneName(lane),
      async (job, token = '') => {
        const id = job.id!;
        const end = await handler({
          lease: { lane, id, token },
          data: job.data,
          stalled: job.stalledCounter,
        });
        if (end === 'giveBack') {
          // Refused, it belongs to another worker by now, or to whoever finds it when its lock has run out.
          await job.moveToWait(token).catch(() => {});
          throw new WaitingError();
        }
        lastFinished = id;
      },
      {
        ...optionsOfLane(access, lane),
        ...NOT_RUNNING,
        ...{ concurrency: 1, lockDuration, stalledInterval },
        maxStalledCount: MAX_STALLED,
        drainDelay: DRAIN_DELAY,
        runRetryDelay: RUN_RETRY_DELAY,
      },
      access.factory,
    );
    // The handler does not throw: the connection was lost when the queue was to be told that the job is completed, and
    // BullMQ calls that failed. It has taken effect, and nobody has to look at it.
    opened.on('failed', (job) => {
      if (job?.id !== undefined && job.id === lastFinished) void removeFinishedJob(job.id);
    });
    opened.on('error', (error) => {
      // BullMQ reports every try; one line says enough until it is over.
      if (performance.now() - warned < WARN_INTERVAL) return;
      warned = performance.now();
      log.warn({ err: error, lane }, 'the queue did not answer');
    });
    return opened;
  }

  const worker = runWorker(openWorker);
  return {
    close: () => worker.close().finally(() => stop.abort()),
  };
}
