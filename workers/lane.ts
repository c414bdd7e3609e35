import { type Job, WaitingError, Worker } from 'bullmq';
import type { Config } from '../src/config.ts';
import type { Envelope } from '../src/jobs/envelope.ts';
import type { Service } from '../src/lifecycle.ts';
import type { Log } from '../src/log.ts';
import type { QueueConnection } from '../src/queue/connection.ts';
import { laneName } from '../src/queue/lanes.ts';
import { openQueue } from '../src/queue/open-queue.ts';
import { waitingIn } from '../src/queue/waiting.ts';
import type { Coalescer } from './coalescer.ts';
import { type Delivery, fenceOf, ledgerKey } from './contract.ts';
import type { Fences } from './fences.ts';
import { createLookahead } from './lookahead.ts';
import type { WaitingEnvelope } from './waiting-run.ts';

/** BullMQ gives a job up for good that stalls more often than this; ours are never given up. */
const MAX_STALLED = 1_000_000;

/** Seconds that an idle lane waits for its next job: also the longest sleep after a graceful hand-over. */
const DRAIN_DELAY = 0.5;

/** Milliseconds before the lane asks again after an error of the queue. */
const RUN_RETRY_DELAY = 250;

/** Milliseconds between two lines about a queue that does not answer. */
const WARN_INTERVAL = 5000;

export interface Lane extends Service {
  /** Stands no longer at a fence, if it does: its job, and those of the lanes that it waits for, are gone. */
  leaveFence(): void;
}

export interface LaneContext {
  connection: QueueConnection;
  coalescer: Coalescer;
  fences: Fences;
  config: Pick<Config, 'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS'>;
  log: Log;
}

/**
 * Works one lane: takes its jobs one at a time and hands each to the coalescer, with what was seen to wait behind it;
 * at a fence it waits for the other lanes. The processor never throws, since a failed job would come back behind later
 * ones. What it gives back when it stops at a fence goes to the head of the lane: BullMQ puts it where jobs are taken
 * next on Redis, and on Postgres it keeps its place in the order.
 */
export function startLane(lane: number, { connection, coalescer, fences, config, log }: LaneContext): Lane {
  let leaving = new AbortController();

  const queue = openQueue<Envelope>(connection, laneName(lane));
  const lookahead = createLookahead(waitingIn(connection, queue));

  /** Jobs that took effect together with one in front of them. */
  const early = new Set<string>();

  /** The last job that has taken effect; the queue may not know of it yet. */
  let applied: string | undefined;

  async function work(job: Job<Envelope>, token?: string): Promise<void> {
    await apply(job, token);
    applied = job.id;
  }

  async function apply(job: Job<Envelope>, token?: string): Promise<void> {
    const id = job.id!;
    if (early.delete(id)) return;
    early.clear();
    const ahead = await lookahead.take(id);
    const delivery = deliveryOf(id, job.data);
    const fence = fenceOf(delivery);
    if (!fence) return applyRun(delivery, ahead);
    const applyFence = () => coalescer.apply({ ...delivery, id: fence.id });
    if (await fences.cross({ lane, fence, apply: applyFence, leaving: leaving.signal })) return;
    // Refused, it belongs to another worker by now, or to whoever finds it when its lock has run out.
    await job.moveToWait(token).catch(() => {});
    throw new WaitingError();
  }

  /** One transaction for a job and what was seen behind it. */
  async function applyRun(delivery: Delivery, ahead: WaitingEnvelope[]): Promise<void> {
    const applied = coalescer.apply(delivery, ...ahead.map(({ id, envelope }) => deliveryOf(id, envelope)));
    void lookahead.look(ahead, applied);
    await applied;
    for (const { id } of ahead) {
      early.add(id);
      // What is handed out before it is removed is completed at once.
      queue.remove(id).catch(() => {});
    }
  }

  const deliveryOf = (jobId: string, envelope: Envelope): Delivery => ({
    id: ledgerKey(jobId),
    lane,
    envelope,
  });

  const worker = new Worker<Envelope>(
    laneName(lane),
    work,
    {
      ...connection.options,
      concurrency: 1,
      lockDuration: config.LOCK_DURATION_MS,
      stalledInterval: config.STALLED_INTERVAL_MS,
      maxStalledCount: MAX_STALLED,
      drainDelay: DRAIN_DELAY,
      runRetryDelay: RUN_RETRY_DELAY,
    },
    connection.factory,
  );
  // The processor does not throw: the connection was lost when the queue was to be told that the job is completed,
  // and BullMQ calls that failed. It has taken effect, and nobody has to look at it.
  worker.on('failed', (job) => {
    if (job?.id !== undefined && job.id === applied) job.remove().catch(() => {});
  });
  let warned = Number.NEGATIVE_INFINITY;
  worker.on('error', (error) => {
    // BullMQ reports every try; one line says enough until it is over.
    if (performance.now() - warned < WARN_INTERVAL) return;
    warned = performance.now();
    log.warn({ err: error, lane }, 'the queue did not answer');
  });
  return {
    name: `lane ${lane}`,
    leaveFence() {
      leaving.abort();
      leaving = new AbortController();
    },
    async stop() {
      // In this order: a worker that is not closing would take the job again that it gives back.
      const closed = worker.close();
      leaving.abort();
      await closed;
      lookahead.forget();
      await queue.close();
    },
  };
}
