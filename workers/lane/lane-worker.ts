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

/** Number of objects that a lane watches after a process died in it: at least as many as that process can have held. */
const WATCHED_OBJECTS = 20_000;

/** Batch size of a watched lane as a fraction of a full transaction, so that another crash leaves few suspects. */
const WATCHED_PART = 1 / 8;

/** Milliseconds after which a lane ends its lease, once the leased envelope has taken effect. */
const MAX_LEASE_MS = 500;

/** Milliseconds between snapshots during a batch: first, maximum while several workspaces send, maximum otherwise. */
const FIRST_PAUSE_MS = 4;
const MAX_SHARED_PAUSE_MS = 25;
const MAX_PAUSE_MS = 250;

export interface LaneContext {
  laneStore: LaneStore;
  scheduler: Pick<Scheduler, 'accounts' | 'step' | 'apply' | 'forget'>;
  fences: Fences;
  config: LayoutSettings & Pick<Config, 'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS'>;
  log: Log;
  /** Latest envelope version that this worker can apply; defaults to the version of this release. */
  reads?: number;
  /** Called when the next envelope has a later version. The lane returns the envelope and takes no further jobs. */
  onUnreadable?(version: number): void;
}

/**
 * Works one lane. The active job is the lease of the lane: while this worker holds it, the worker chooses any number of
 * batches from the lane, applies them and removes them from the lane, and finishes the leased envelope last. At a fence
 * the lane waits for the other lanes. An envelope that is given back on stop returns to the head of the lane.
 */
export class LaneWorker implements Service {
  readonly name: string;
  readonly #lane: number;
  readonly #context: LaneContext;
  readonly #reads: number;
  readonly #window: LaneWindow;
  readonly #worker: LeasingWorker;
  #leaving = new AbortController();
  /** Aborted when the lane stops taking jobs. */
  readonly #closing = new AbortController();
  /** Whether `stop` was called: the lane no longer waits at any fence. */
  #isStopped = false;
  /** Number of objects that still have to be watched. */
  #toWatch = 0;

  /** Creates the worker and starts to lease jobs of the lane. */
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

  /** Ends a wait at a fence because the queue has lost the jobs of the lanes that wait for each other. */
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
    this.#context.scheduler.forget(this.#lane);
  }

  /** Stops leasing jobs. Otherwise, the queue would lease a returned envelope to this worker again. */
  #close(): Promise<void> {
    this.#closing.abort();
    return this.#worker.close();
  }

  async #work({ lease, data, stalled }: LeasedEnvelope): Promise<LeaseEnd> {
    if (this.#window.isDone(lease.id)) return 'finish';
    if (stalled > 0) this.#watch();
    const version = versionOf(data);
    if (version > this.#reads) {
      // Applying it here would turn its objects into dead letters. A worker of the later release can apply them.
      void this.#close();
      this.#context.onUnreadable?.(version);
      return 'giveBack';
    }
    const delivery = this.#deliver(lease.id, data);
    if (fenceOf(delivery)) return this.#cross(delivery);
    this.#window.begin(lease, data);
    return this.#runBatches(lease);
  }

  /** Watches the next objects: a process died or froze while it held this lane, and it had read these objects. */
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

  /**
   * Applies batches of the lane until the leased envelope has taken effect, and then until the window is empty or the
   * time of the lease is over.
   */
  async #runBatches(lease: Lease): Promise<LeaseEnd> {
    const { scheduler, laneStore } = this.#context;
    const window = this.#window;
    const isDone = () => window.isDone(lease.id);
    const ends = performance.now() + MAX_LEASE_MS;
    let removal: Promise<boolean> | true = true;
    for (;;) {
      // Sent together because the snapshot does not depend on the removal.
      const [isHeld, isSeen] = await Promise.all([removal, window.refresh(lease)]);
      if (!isHeld || !isSeen) break;
      const isOver = window.envelopes().length === 0 || performance.now() > ends;
      if (isDone() && (isOver || this.#closing.signal.aborted)) return 'finish';
      if (this.#closing.signal.aborted) return 'giveBack';
      const batch = new AbortController();
      void this.#refreshWindow(lease, batch.signal);
      const step = await scheduler.step({
        lane: this.#lane,
        envelopes: () => window.envelopes(),
        refresh: () => window.refresh(lease),
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
      // A job that could not be removed is skipped when it is leased: see `isDone`.
      removal = done.length === 0 || laneStore.complete(lease, done).catch(() => true);
    }
    // Another worker may hold the lane now.
    const end = isDone() ? 'finish' : 'giveBack';
    window.forget();
    scheduler.forget(this.#lane);
    return end;
  }

  /** Refreshes the window while a batch is applied, so that the next batch does not have to wait for a snapshot. */
  async #refreshWindow(lease: Lease, over: AbortSignal): Promise<void> {
    const { accounts } = this.#context.scheduler;
    for (const nextPause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS); ; ) {
      const maxPause = accounts.slice() === undefined ? MAX_PAUSE_MS : MAX_SHARED_PAUSE_MS;
      await rest(Math.min(nextPause(), maxPause), over);
      if (over.aborted || !(await this.#window.refresh(lease))) return;
    }
  }

  #deliver(jobId: string, wire: WireEnvelope): Delivery {
    const envelope = decodeEnvelope(wire);
    const delivery = { id: ledgerKey(jobId), lane: this.#lane, lanes: this.#context.config.LANES, envelope };
    if (this.#toWatch <= 0) return delivery;
    // An envelope of another release may have another shape, so `objects` may not be an array.
    this.#toWatch -= Array.isArray(envelope?.objects) ? envelope.objects.length : 1;
    return { ...delivery, isWatched: true };
  }
}
