import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'bullmq';
import type { Config } from '../../src/platform/config.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import { WaitingError, Worker } from '../../src/queue/bullmq.ts';
import { openLane, optionsOfLane, type QueueConnection } from '../../src/queue/connection.ts';
import { type LayoutSettings, laneName } from '../../src/queue/lanes.ts';
import { NOT_RUNNING, runWorker } from '../../src/queue/open-worker.ts';
import { type HeldJob, waitingIn } from '../../src/queue/waiting.ts';
import { decodeEnvelope, READS, versionOf, type WireEnvelope } from '../../src/queue/wire.ts';
import type { Coalescer } from '../batch/coalescer.ts';
import { countObjects } from '../batch/handed-in.ts';
import { type Delivery, fenceOf, ledgerKey } from '../batch/open.ts';
import type { Fences } from '../fence/fences.ts';
import { type Held, InWork } from './in-work.ts';
import { createLooks, createOvertaking } from './overtaking.ts';
import { createPrefetch, type WaitingEnvelope } from './prefetch.ts';

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

/**
 * Objects of a lane whose envelopes are watched after a process ended in it: at least as many as the process may have
 * had in hand.
 */
const WATCHED_OBJECTS = 20_000;

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
  config: LayoutSettings & Pick<Config, 'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS'>;
  log: Log;
  /** Latest version of envelopes that is applied; absent: that of this release. */
  reads?: number;
  /** Called when the lane has come to an envelope of a later version: it has given it back and takes no job any more. */
  onUnreadable?(version: number): void;
}

/**
 * Works one lane: takes its jobs one at a time and hands each to the coalescer, with what was prefetched behind it. At
 * a fence it waits for the other lanes. The processor never throws, since a failed job would come back behind later
 * ones. What it gives back when it stops at a fence goes to the head of the lane. BullMQ puts it where jobs are taken
 * next on Redis; on Postgres it keeps its place in the order.
 */
export function startLane(lane: number, context: LaneContext): Lane {
  const { connection, coalescer, fences, config, log, reads = READS } = context;
  let leaving = new AbortController();
  const stop = new AbortController();
  const stopping = stop.signal;
  /** No job is taken any more. */
  let closing = false;
  /** No fence is stood at any more. */
  let stopped = false;

  const queue = openLane<WireEnvelope>(connection, lane);
  const waiting = waitingIn(connection, queue);
  const prefetch = createPrefetch(waiting, reads);
  const overtaking = createOvertaking(waiting, reads);
  const looks = createLooks();

  /** Jobs that took effect together with one in front of them. */
  const early = new Set<string>();

  /** The job in work and those that are applied with it, until all of them have taken effect. */
  let inWork: InWork | undefined;
  coalescer.follow(lane, { onCut: takeMore, onOvertaken: prefetch.makeWay });

  /** The last job that has taken effect; the queue may not know of it yet. */
  let lastApplied: string | undefined;

  async function work(job: Job<WireEnvelope>, token?: string): Promise<void> {
    await apply(job, token);
    lastApplied = job.id;
  }

  /** Objects that are still to be watched. */
  let toWatch = 0;

  async function apply(job: Job<WireEnvelope>, token = ''): Promise<void> {
    const id = job.id!;
    if (job.stalledCounter > 0) watch();
    const held = { id, token };
    if (early.delete(id)) return;
    early.clear();
    const version = versionOf(job.data);
    if (version > reads) {
      // Taken for something that nobody can apply, it would be dead letters. A worker of its release takes it.
      void close();
      context.onUnreadable?.(version);
      return giveBack(job, token);
    }
    const following = await prefetch.take(held, job.data);
    const delivery = deliveryOf(id, job.data);
    const fence = fenceOf(delivery);
    if (!fence) return applyPrefetched(held, delivery, following);
    const applyFence = () => coalescer.apply({ ...delivery, id: fence.id });
    if (await fences.cross({ lane, fence, apply: applyFence, leaving: leaving.signal })) return;
    return giveBack(job, token);
  }

  /** A process ended, or was silent, with this job in work: what it had in hand comes next. */
  function watch(): void {
    toWatch = WATCHED_OBJECTS;
    // Few objects at a time, so that few are suspects if the process ends again.
    prefetch.makeWay();
  }

  /** Refused, it belongs to another worker by now, or to whoever finds it when its lock has run out. */
  async function giveBack(job: Job<WireEnvelope>, token: string): Promise<never> {
    await job.moveToWait(token).catch(() => {});
    throw new WaitingError();
  }

  /** A worker that is not closing would take the job again that it gives back. */
  function close(): Promise<void> {
    closing = true;
    return worker.close();
  }

  /** One batch for a job and what was seen behind it, and what is seen later if it takes long. */
  async function applyPrefetched(
    held: HeldJob,
    delivery: Delivery,
    following: WaitingEnvelope[],
  ): Promise<void> {
    const { along, beside } = overtaking.part(delivery, following);
    const mine = new InWork(held, delivery, along.map(heldOf));
    inWork = mine;
    const first = mine.handIn(coalescer.apply(...mine.deliveries()));
    if (beside.length > 0) {
      looks.note(true);
      void mine.handIn(applyBeside(mine, beside));
    }
    void prefetch.read(along, first);
    void letOvertake(mine, first);
    await mine.applied();
    inWork = undefined;
    await removeEarly(mine.jobs());
  }

  /** Until the job and what was applied with it has taken effect, those who wait behind others have their turns beside it. */
  async function letOvertake(mine: InWork, first: Promise<void>): Promise<void> {
    let over = false;
    void first.then(() => {
      over = true;
    });
    for (;;) {
      await sleep(looks.wait());
      if (over || closing) return;
      // While the job is in work nobody is handed what is removed: so it is until what was found has taken effect.
      await mine.handIn(look(mine));
    }
  }

  async function look(mine: InWork): Promise<void> {
    const isFree = coalescer.beside.isFree();
    const found = isFree ? await overtaking.find(mine.held, mine.deliveries(), early).catch(() => []) : [];
    looks.note(found.length > 0);
    if (found.length > 0 && !closing) await applyBeside(mine, found);
  }

  async function applyBeside(mine: InWork, found: WaitingEnvelope[]): Promise<void> {
    if (!coalescer.beside.isFree()) return;
    prefetch.makeWay();
    const ids = found.map(({ id }) => id);
    const done = await coalescer.beside.apply(found.map(({ id, envelope }) => deliveryOf(id, envelope)));
    if (done === false) overtaking.leave(ids);
    if (!done) return;
    prefetch.leaveOut(ids);
    // The next look does not wait for it.
    void mine.handIn(removeEarly(ids));
  }

  /** A batch that takes long was cut: who shares the lane has a turn between two parts of it. */
  async function takeMore(pending: ReadonlySet<string>): Promise<void> {
    const mine = inWork;
    if (!mine || closing) return;
    await removeEarly(mine.keep(pending));
    if (mine.isFull()) return;
    const ahead = mine.jobs().map((id) => ({ id }));
    const more = await prefetch.takeMore(mine.held, ahead, mine.handedInSoFar());
    // Applied in the meantime, the lane hands out the next one itself.
    if (inWork !== mine || closing || more.length === 0) return;
    const added = more.map(heldOf);
    mine.add(added);
    void mine.handIn(coalescer.apply(...added.map(({ delivery }) => delivery)));
  }

  /**
   * While a job is in work none of these is handed out: removed later, one could be gone in somebody's hands. What could
   * not be removed is completed at once when its turn comes.
   */
  async function removeEarly(ids: string[]): Promise<void> {
    for (const id of ids) early.add(id);
    if (ids.length > 0) await waiting.remove(ids).catch(() => {});
  }

  function deliveryOf(jobId: string, wire: WireEnvelope): Delivery {
    const delivery = { id: ledgerKey(jobId), lane, lanes: config.LANES, envelope: decodeEnvelope(wire) };
    if (toWatch <= 0) return delivery;
    toWatch -= countObjects([delivery]);
    return { ...delivery, isWatched: true };
  }

  const heldOf = ({ id, envelope, size }: WaitingEnvelope): Held => ({
    delivery: deliveryOf(id, envelope),
    job: id,
    size,
  });

  /** The connection that broke when it was to be completed may break again. */
  async function removeApplied(id: string): Promise<void> {
    const nextWait = backOff(FIRST_REMOVAL_MS, LONGEST_REMOVAL_MS);
    for (let times = 0; times < MOST_REMOVALS; times++) {
      await rest(times === 0 ? 0 : nextWait(), stopping);
      if (stopping.aborted) return;
      try {
        // Of one that is gone nothing is said: an answer that got lost may have been that of its removal.
        await queue.remove(id, { removeChildren: false });
        return;
      } catch (error) {
        log.debug({ err: error, lane, job: id }, 'a job that has taken effect is not removed yet');
      }
    }
  }

  let warned = Number.NEGATIVE_INFINITY;

  function openWorker() {
    const opened = new Worker<WireEnvelope>(
      laneName(lane),
      work,
      {
        ...optionsOfLane(connection, lane),
        ...NOT_RUNNING,
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
    opened.on('failed', (job) => {
      if (job?.id !== undefined && job.id === lastApplied) void removeApplied(job.id);
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
    name: `lane ${lane}`,
    leaveFence() {
      leaving.abort();
      if (!stopped) leaving = new AbortController();
    },
    async stop() {
      const closed = close();
      stopped = true;
      leaving.abort();
      await closed;
      prefetch.forget();
      stop.abort();
      await queue.close();
    },
  };
}
