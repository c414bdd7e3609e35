import type { Config } from '../../src/platform/config.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import type {
  LaneStore,
  Lease,
  LeasedEnvelope,
  LeaseEnd,
  LaneWorker as LeasingWorker,
} from '../../src/queue/lane-store.ts';
import type { LayoutSettings } from '../../src/queue/lanes.ts';
import { decodeEnvelope, READS, versionOf, type WireEnvelope } from '../../src/queue/wire.ts';
import { type Delivery, fenceOf, ledgerKey } from '../batch/open.ts';
import type { Fences } from '../fence/fences.ts';
import { LaneWindow } from './lane-window.ts';
import type { Scheduler } from './scheduler.ts';

/** Number of objects that a lane watches after a process ended in it: at least as many as the process may have held. */
const WATCHED_OBJECTS = 20_000;

/** The part of a transaction that a watched lane has at once: few objects are suspects if the process ends again. */
const WATCHED_PART = 1 / 8;

/** Milliseconds for which a lane goes on under the lease of an envelope that has taken effect. */
const LONGEST_LEASE_MS = 500;

/** Milliseconds between two looks at the lane during a batch: the first, and the longest while others send and otherwise. */
const FIRST_PAUSE_MS = 4;
const LONGEST_SHARED_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 250;

export interface LaneContext {
  laneStore: LaneStore;
  scheduler: Pick<Scheduler, 'accounts' | 'step' | 'apply'>;
  fences: Fences;
  config: LayoutSettings & Pick<Config, 'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS'>;
  log: Log;
  /** Latest version of envelopes that is applied; absent: that of this release. */
  reads?: number;
  /** Called when the lane has come to an envelope of a later version: it has given it back and takes no job any more. */
  onUnreadable?(version: number): void;
}

/**
 * Works one lane. The job that the lane hands out is the lease of the lane: while it is held, any number of batches are
 * chosen from the lane, applied and removed from it, and the leased envelope is finished last. At a fence the lane waits
 * for the other lanes. What it gives back when it stops goes to the head of the lane.
 */
export class LaneWorker implements Service {
  readonly name: string;
  readonly #lane: number;
  readonly #context: LaneContext;
  readonly #reads: number;
  readonly #window: LaneWindow;
  readonly #worker: LeasingWorker;
  #leaving = new AbortController();
  /** Takes no job any more. */
  readonly #closing = new AbortController();
  /** Stands at no fence any more. */
  #isStopped = false;
  /** Objects that are still to be watched. */
  #toWatch = 0;

  /** Starts to work the lane. */
  constructor(lane: number, context: LaneContext) {
    const { laneStore, scheduler, config, log, reads = READS } = context;
    this.name = `lane ${lane}`;
    this.#lane = lane;
    this.#context = context;
    this.#reads = reads;
    this.#window = new LaneWindow({
      ...{ laneStore, accounts: scheduler.accounts, lane, reads },
      deliver: (jobId, wire) => this.#deliver(jobId, wire),
    });
    this.#worker = laneStore.lease(lane, (leased) => this.#work(leased), {
      ...{ lockDuration: config.LOCK_DURATION_MS, stalledInterval: config.STALLED_INTERVAL_MS, log },
    });
  }

  /** Stands no longer at a fence, if it does: its job, and those of the lanes that it waits for, are gone. */
  leaveFence(): void {
    this.#leaving.abort();
    if (!this.#isStopped) this.#leaving = new AbortController();
  }

  async stop(): Promise<void> {
    const closed = this.#close();
    this.#isStopped = true;
    this.#leaving.abort();
    await closed;
    this.#window.forget();
  }

  /** A worker that is not closing would be handed the envelope again that it gives back. */
  #close(): Promise<void> {
    this.#closing.abort();
    return this.#worker.close();
  }

  async #work({ lease, data, stalled }: LeasedEnvelope): Promise<LeaseEnd> {
    if (this.#window.isDone(lease.id)) return 'finish';
    if (stalled > 0) this.#watch();
    const version = versionOf(data);
    if (version > this.#reads) {
      // Taken for something that nobody can apply, it would be dead letters. A worker of its release takes it.
      void this.#close();
      this.#context.onUnreadable?.(version);
      return 'giveBack';
    }
    const delivery = this.#deliver(lease.id, data);
    if (fenceOf(delivery)) return this.#cross(delivery);
    this.#window.begin(lease, data);
    return this.#runBatches(lease);
  }

  /** Watches the next objects: a process ended or froze while it held this lane, and they are what it had read. */
  #watch(): void {
    this.#toWatch = WATCHED_OBJECTS;
    this.#window.forget();
  }

  async #cross(delivery: Delivery): Promise<LeaseEnd> {
    const { fences, scheduler } = this.#context;
    const fence = fenceOf(delivery)!;
    const apply = () => scheduler.apply({ ...delivery, id: fence.id });
    const isPassed = await fences.cross({ lane: this.#lane, fence, apply, leaving: this.#leaving.signal });
    return isPassed ? 'finish' : 'giveBack';
  }

  /** Applies batches of the lane until the leased envelope has taken effect, and what waits meanwhile. */
  async #runBatches(lease: Lease): Promise<LeaseEnd> {
    const { scheduler, laneStore } = this.#context;
    const window = this.#window;
    const isDone = () => window.isDone(lease.id);
    const ends = performance.now() + LONGEST_LEASE_MS;
    let removal: Promise<boolean> | true = true;
    for (;;) {
      // Sent together: the look need not wait for the removal.
      const [isHeld, isSeen] = await Promise.all([removal, window.look(lease)]);
      if (!isHeld || !isSeen) break;
      const isOver = window.envelopes().length === 0 || performance.now() > ends;
      if (isDone() && (isOver || this.#closing.signal.aborted)) return 'finish';
      if (this.#closing.signal.aborted) return 'giveBack';
      const batch = new AbortController();
      void this.#lookAhead(lease, batch.signal);
      const step = await scheduler.step({
        lane: this.#lane,
        envelopes: () => window.envelopes(),
        refresh: () => window.look(lease),
        enough: this.#toWatch > 0 ? WATCHED_PART : 1,
      });
      batch.abort();
      if (step.kind === 'abandoned') return 'giveBack';
      if (step.kind === 'waits') {
        if (isDone()) return 'finish';
        removal = true;
        await rest(step.milliseconds, this.#closing.signal);
        continue;
      }
      const done = window.note(step).filter((job) => job !== lease.id);
      // What could not be removed is skipped when it is handed out.
      removal = done.length === 0 || laneStore.complete(lease, done).catch(() => true);
    }
    // Another worker has the lane, or may have.
    const end = isDone() ? 'finish' : 'giveBack';
    window.forget();
    return end;
  }

  /** Reads what waits in the lane while a batch is applied, so that the next one need not wait for it. */
  async #lookAhead(lease: Lease, over: AbortSignal): Promise<void> {
    const { accounts } = this.#context.scheduler;
    for (const nextPause = backOff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS); ; ) {
      const longest = accounts.slice() === undefined ? LONGEST_PAUSE_MS : LONGEST_SHARED_PAUSE_MS;
      await rest(Math.min(nextPause(), longest), over);
      if (over.aborted || !(await this.#window.look(lease))) return;
    }
  }

  #deliver(jobId: string, wire: WireEnvelope): Delivery {
    const envelope = decodeEnvelope(wire);
    const delivery = { id: ledgerKey(jobId), lane: this.#lane, lanes: this.#context.config.LANES, envelope };
    if (this.#toWatch <= 0) return delivery;
    // Of whatever a lane held: an envelope of another release may have a shape of its own.
    this.#toWatch -= Array.isArray(envelope?.objects) ? envelope.objects.length : 1;
    return { ...delivery, isWatched: true };
  }
}
