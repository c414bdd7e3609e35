import { backOff, rest } from '../platform/poll.ts';
import { type Queue, WaitingError, Worker } from './bullmq.ts';
import { limitLane, openLane, optionsOfLane, type QueueAccess, removeFinished } from './bullmq-queues.ts';
import { unsealParsed } from './checksum.ts';
import { createLaneProducer } from './lane-producer.ts';
import type {
  LaneSample,
  LaneStore,
  LaneWorker,
  Lease,
  LeaseHandler,
  LeaseOptions,
  OldestEnvelope,
  StoredEnvelope,
} from './lane-store.ts';
import { laneName } from './lanes.ts';
import { drainDelayOf, NOT_RUNNING, runWorker } from './open-worker.ts';
import type { WireEnvelope } from './wire.ts';

export type LaneQueue = Queue<WireEnvelope>;

/** Operations that BullMQ lacks, or that are too slow in BullMQ: each server has commands or statements of its own. */
export interface LaneBackend {
  head(queue: LaneQueue, max: number): Promise<string[]>;
  window(queue: LaneQueue, lease: Lease, max: number): Promise<string[] | undefined>;
  read(queue: LaneQueue, ids: string[], bytes: number): Promise<(StoredEnvelope | undefined)[]>;
  complete(queue: LaneQueue, lease: Lease, ids: string[]): Promise<boolean>;
  sample(queue: LaneQueue, max: number): Promise<LaneSample>;
  oldest(queue: LaneQueue): Promise<OldestEnvelope | undefined>;
  endLease(queue: LaneQueue): Promise<void>;
  /**
   * Replaces active jobs that cannot be parsed, so that the lane can hand them out. Returns their ids. Absent: the
   * server stores values and not their text.
   */
  makeReadable?(queue: LaneQueue): Promise<string[]>;
  /** @param queues lanes of one shard */
  countWaiting(queues: LaneQueue[]): Promise<number>;
  oldestOf(queues: LaneQueue[]): Promise<number | undefined>;
}

/** States of envelopes that still have to be applied. */
const PRESENT = ['waiting', 'active'] as const;

/** Implements a lane store with the classes of BullMQ, which both servers share. */
export function createLaneStore(access: QueueAccess, backend: LaneBackend): LaneStore {
  const { layout } = access;
  /** Handles by lane, opened at their first use. They share the connection, and end with it. */
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
    createProducer: (options) => createLaneProducer(access, options),

    limit: (lane) => limitLane(access, lane),
    isLimited: async (lane) => (await queueOf(lane).getGlobalConcurrency()) === 1,

    lease(lane, handler, options) {
      const makeReadable = backend.makeReadable && (() => backend.makeReadable!(queueOf(lane)));
      return leaseLane(access, { lane, handler, remove, makeReadable, ...options });
    },
    endLease: (lane) => backend.endLease(queueOf(lane)),

    head: (lane, max) => backend.head(queueOf(lane), max),
    window: (lease, max) => backend.window(queueOf(lease.lane), lease, max),
    read: (lane, ids, bytes = Number.MAX_SAFE_INTEGER) => backend.read(queueOf(lane), ids, bytes),
    complete: (lease, ids) => backend.complete(queueOf(lease.lane), lease, ids),

    sample: (lane, max) => backend.sample(queueOf(lane), max),

    async depth(lane) {
      const { waiting = 0, active = 0 } = await queueOf(lane).getJobCounts(...PRESENT);
      return { waiting, active };
    },
    waitingInShard: (shard) => backend.countWaiting(queuesOf(shard)),
    oldest: (lane) => backend.oldest(queueOf(lane)),
    oldestInShard: (shard) => backend.oldestOf(queuesOf(shard)),
    async find(lane, [from, to]) {
      // The active jobs are read last, so a job that becomes active in between is found there.
      const ids = await queueOf(lane).getRanges([...PRESENT], 0, -1);
      return ids.filter((id) => id >= from && id <= to).sort();
    },
    isPaused: (lane) => queueOf(lane).isPaused(),

    failed: (lane, max) => queueOf(lane).getRanges(['failed'], 0, max - 1, true),
    remove,
    forgetFinished: (lane) => removeFinished(queueOf(lane)),
  };
}

/** BullMQ fails a job that stalls more often than this. An envelope may stall any number of times. */
const MAX_STALLED = 1_000_000;

/**
 * Seconds that one command of an idle lane waits for the next job. A job that was given back is taken after this time
 * at the latest.
 */
const DRAIN_DELAY = 0.5;

/** Milliseconds before BullMQ asks for a job again after an error. */
const RUN_RETRY_DELAY = 250;

/**
 * Attempts to remove a finished job, and milliseconds between them. After these attempts the upkeep removes the job.
 */
const MAX_REMOVAL_ATTEMPTS = 6;
const FIRST_REMOVAL_MS = 50;
const MAX_REMOVAL_MS = 800;

/** Milliseconds between two log lines about a queue that does not answer. */
const WARN_INTERVAL = 5000;

interface Leasing extends LeaseOptions {
  lane: number;
  handler: LeaseHandler;
  remove(lane: number, id: string): Promise<void>;
  /** Absent: a job of this store can always be parsed. */
  makeReadable: (() => Promise<string[]>) | undefined;
}

/**
 * Runs BullMQ's worker for a lane. BullMQ completes a finished job in the command that fetches the next job. A job
 * that is given back returns to the head of the lane: on Redis BullMQ puts it there, and on Postgres it keeps its
 * `seq`.
 */
function leaseLane(
  access: QueueAccess,
  { lane, handler, remove, makeReadable, lockDuration, stalledInterval, log }: Leasing,
): LaneWorker {
  const stop = new AbortController();

  /** Id of the last job that the handler finished. BullMQ may fail to complete it. */
  let lastFinished: string | undefined;

  /** Removes a finished job that BullMQ could not complete. Retries, because the connection may break again. */
  async function removeFinishedJob(id: string): Promise<void> {
    const nextWait = backOff(FIRST_REMOVAL_MS, MAX_REMOVAL_MS);
    for (let times = 0; times < MAX_REMOVAL_ATTEMPTS; times++) {
      await rest(times === 0 ? 0 : nextWait(), stop.signal);
      if (stop.signal.aborted) return;
      try {
        // Removing a job that is gone succeeds. The answer to an earlier attempt may have been lost.
        return await remove(lane, id);
      } catch (error) {
        log.debug({ err: error, lane, job: id }, 'applied job was not removed from its lane');
      }
    }
  }

  async function repair(): Promise<void> {
    const ids = (await makeReadable?.().catch(() => [])) ?? [];
    if (ids.length > 0)
      log.error(
        { lane, jobs: ids },
        'job was damaged in Redis and cannot be parsed; its text becomes a dead letter, and the lane continues',
      );
  }

  let warned = Number.NEGATIVE_INFINITY;

  function openWorker() {
    const opened = new Worker<WireEnvelope>(
      laneName(lane),
      async (job, token = '') => {
        const id = job.id!;
        const end = await handler({
          lease: { lane, id, token },
          data: access.redis ? (unsealParsed(job.data) as WireEnvelope) : job.data,
          stalled: job.stalledCounter,
        });
        if (end === 'giveBack') {
          // If the job cannot be given back, another worker has it already, or gets it when its lock expires.
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
        drainDelay: drainDelayOf(access, { atLeast: DRAIN_DELAY, stalledInterval }),
        runRetryDelay: RUN_RETRY_DELAY,
      },
      access.factory,
    );
    // BullMQ also reports a job as failed when the connection is lost while the job is completed. Such a job has taken
    // effect, and no operator has to look at it.
    opened.on('failed', (job) => {
      if (job?.id !== undefined && job.id === lastFinished) void removeFinishedJob(job.id);
    });
    opened.on('error', (error) => {
      // BullMQ cannot parse a job of the lane. It would be handed this job again each time the lock expires.
      if (error instanceof SyntaxError) void repair();
      // BullMQ emits an error for each attempt. One line in five seconds is enough.
      if (performance.now() - warned < WARN_INTERVAL) return;
      warned = performance.now();
      log.warn({ err: error, lane }, 'queue did not answer');
    });
    return opened;
  }

  const worker = runWorker(openWorker);
  return {
    close: () => worker.close().finally(() => stop.abort()),
  };
}
