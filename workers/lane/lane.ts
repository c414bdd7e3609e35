import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../../src/platform/config.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import type { LaneStore, Lease, LeasedEnvelope, LeaseEnd } from '../../src/queue/lane-store.ts';
import type { LayoutSettings } from '../../src/queue/lanes.ts';
import { decodeEnvelope, READS, versionOf, type WireEnvelope } from '../../src/queue/wire.ts';
import type { Coalescer } from '../batch/coalescer.ts';
import { countObjects } from '../batch/handed-in.ts';
import { type Delivery, fenceOf, ledgerKey } from '../batch/open.ts';
import type { Fences } from '../fence/fences.ts';
import { type Held, InWork } from './in-work.ts';
import { createLooks, createOvertaking } from './overtaking.ts';
import { createPrefetch, type WaitingEnvelope } from './prefetch.ts';

/** Number of objects that a lane watches after a process ended in it: at least as many as the process may have held. */
const WATCHED_OBJECTS = 20_000;

export interface Lane extends Service {
  /** Stands no longer at a fence, if it does: its job, and those of the lanes that it waits for, are gone. */
  leaveFence(): void;
}

export interface LaneContext {
  laneStore: LaneStore;
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
 * Works one lane: takes its envelopes one at a time and hands each to the coalescer, with what was prefetched behind it.
 * At a fence it waits for the other lanes. What it gives back when it stops at a fence goes to the head of the lane.
 */
export function startLane(lane: number, context: LaneContext): Lane {
  const { laneStore, coalescer, fences, config, log, reads = READS } = context;
  let leaving = new AbortController();
  /** No job is taken any more. */
  let closing = false;
  /** No fence is stood at any more. */
  let stopped = false;

  const prefetch = createPrefetch(laneStore, lane, reads);
  const overtaking = createOvertaking(laneStore, reads);
  const looks = createLooks();

  /** Jobs that took effect together with one in front of them. */
  const early = new Set<string>();

  /** The job in work and those that are applied with it, until all of them have taken effect. */
  let inWork: InWork | undefined;
  coalescer.follow(lane, { onCut: takeMore, onOvertaken: prefetch.makeWay });

  /** Objects that are still to be watched. */
  let toWatch = 0;

  async function work({ lease, data, stalled }: LeasedEnvelope): Promise<LeaseEnd> {
    const { id } = lease;
    if (stalled > 0) watch();
    if (early.delete(id)) return 'finish';
    early.clear();
    const version = versionOf(data);
    if (version > reads) {
      // Taken for something that nobody can apply, it would be dead letters. A worker of its release takes it.
      void close();
      context.onUnreadable?.(version);
      return 'giveBack';
    }
    const following = await prefetch.take(lease, data);
    const delivery = deliveryOf(id, data);
    const fence = fenceOf(delivery);
    if (!fence) {
      await applyPrefetched(lease, delivery, following);
      return 'finish';
    }
    const applyFence = () => coalescer.apply({ ...delivery, id: fence.id });
    const isPassed = await fences.cross({ lane, fence, apply: applyFence, leaving: leaving.signal });
    return isPassed ? 'finish' : 'giveBack';
  }

  /** Watches the next objects: a process ended or froze while it held this lane, and they are what it had read. */
  function watch(): void {
    toWatch = WATCHED_OBJECTS;
    // Few objects at a time, so that few are suspects if the process ends again.
    prefetch.makeWay();
  }

  /** A worker that is not closing would be handed the envelope again that it gives back. */
  function close(): Promise<void> {
    closing = true;
    return worker.close();
  }

  /** One batch for a job and what was seen behind it, and what is seen later if it takes long. */
  async function applyPrefetched(
    lease: Lease,
    delivery: Delivery,
    following: WaitingEnvelope[],
  ): Promise<void> {
    const { along, beside } = overtaking.part(delivery, following);
    const mine = new InWork(lease, delivery, along.map(heldOf));
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
    await removeEarly(mine.lease, mine.jobs());
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
    const found = isFree ? await overtaking.find(mine.lease, mine.deliveries(), early).catch(() => []) : [];
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
    void mine.handIn(removeEarly(mine.lease, ids));
  }

  /** A batch that takes long was cut: who shares the lane has a turn between two parts of it. */
  async function takeMore(pending: ReadonlySet<string>): Promise<void> {
    const mine = inWork;
    if (!mine || closing) return;
    await removeEarly(mine.lease, mine.keep(pending));
    if (mine.isFull()) return;
    const ahead = mine.jobs().map((id) => ({ id }));
    const more = await prefetch.takeMore(mine.lease, ahead, mine.handedInSoFar());
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
  async function removeEarly(lease: Lease, ids: string[]): Promise<void> {
    for (const id of ids) early.add(id);
    if (ids.length > 0) await laneStore.complete(lease, ids).catch(() => {});
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

  const worker = laneStore.lease(lane, work, {
    ...{ lockDuration: config.LOCK_DURATION_MS, stalledInterval: config.STALLED_INTERVAL_MS, log },
  });

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
    },
  };
}
