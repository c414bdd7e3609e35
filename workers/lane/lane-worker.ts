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
import { type Delivery, ledgerKey } from '../batch/open.ts';
import { LaneWindow, type LaneWindowOptions, type SnapshotSizes } from './lane-window.ts';
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
  scheduler: Pick<Scheduler, 'accounts' | 'step' | 'forget'>;
  fences: LaneWindowOptions['fences'];
  config: LayoutSettings & Pick<Config, 'LOCK_DURATION_MS' | 'STALLED_INTERVAL_MS'>;
  log: Log;
  /** Latest envelope version that this worker can apply; defaults to the version of this release. */
  reads?: number;
  /** Sizes of the snapshots of a lane; other ones only in simulations. */
  sizes?: SnapshotSizes;
  /** Called when the next envelope has a later version. The lane returns the envelope and takes no further jobs. */
  onUnreadable?(version: number): void;
}

/**
 * Works one lane. The active job is the lease of the lane: while this worker holds it, the worker chooses any number of
 * batches from the lane, applies them and removes them from the lane. Finishing the leased job ends the lease, so it comes
 * last. At a fence, the workspace of the fence waits for the other lanes, and other workspaces go on. An envelope that is
 * given back on stop returns to the head of the lane.
 */
export class LaneWorker implements Service {
  readonly name: string;
  readonly #lane: number;
  readonly #context: LaneContext;
  readonly #reads: number;
  readonly #window: LaneWindow;
  readonly #worker: LeasingWorker;
  /** Aborted when the lane stops taking jobs. */
  readonly #closing = new AbortController();
  /** Ends the pause of a lane without an applicable envelope. */
  #pause = new AbortController();
  /** Number of objects that still have to be watched. */
  #toWatch = 0;

  /** Creates the worker and starts to lease jobs of the lane. */
  constructor(lane: number, context: LaneContext) {
    const { laneStore, scheduler, fences, config, log, reads = READS, sizes } = context;
    this.name = `lane ${lane}`;
    this.#lane = lane;
    this.#context = context;
    this.#reads = reads;
    this.#window = new LaneWindow({
      ...{ laneStore, accounts: scheduler.accounts, lane, reads, sizes },
      ...{ fences, deliver: (jobId, wire) => this.#deliver(jobId, wire) },
      onFence: () => this.#pause.abort(),
    });
    this.#worker = laneStore.lease(lane, (leased) => this.#work(leased), {
      ...{ lockDuration: config.LOCK_DURATION_MS, stalledInterval: config.STALLED_INTERVAL_MS, log },
    });
  }

  async stop(): Promise<void> {
    await this.#close();
    this.#window.close();
    this.#context.scheduler.forget(this.#lane);
  }

  /** Stops leasing jobs. Otherwise, the queue would lease a returned envelope to this worker again. */
  #close(): Promise<void> {
    this.#closing.abort();
    this.#pause.abort();
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
    this.#window.begin(lease, data);
    return this.#runBatches(lease);
  }

  /** Watches the next objects: a process died or froze while it held this lane, and it had read these objects. */
  #watch(): void {
    this.#toWatch = WATCHED_OBJECTS;
    this.#window.forget();
  }

  /**
   * Applies batches of the lane until the leased envelope has taken effect, and then until the window is empty or the
   * time of the lease is over. A step names envelopes by their ledger ids. The lane store and the lease name them by the
   * ids of their jobs.
   */
  async #runBatches(lease: Lease): Promise<LeaseEnd> {
    const { scheduler } = this.#context;
    const window = this.#window;
    const { id: leasedJobId } = lease;
    const isDone = () => window.isDone(leasedJobId);
    const ends = performance.now() + MAX_LEASE_MS;
    let removal: Promise<boolean> | true = true;
    for (;;) {
      // Sent together because the snapshot does not depend on the removal.
      const [isHeld, isSeen] = await Promise.all([removal, window.refresh(lease)]);
      if (!isHeld || !isSeen) break;
      this.#pause = new AbortController();
      const passedJobIds = window.removePassed();
      removal = this.#remove(lease, passedJobIds);
      const isOver = window.envelopes().length === 0 || performance.now() > ends;
      const isClosing = this.#closing.signal.aborted;
      if (isClosing || (isDone() && isOver)) {
        if (!(await removal)) break;
        return isDone() ? 'finish' : 'giveBack';
      }
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
        if (!(await removal)) break;
        if (isDone()) return 'finish';
        await rest(step.milliseconds, this.#pause.signal);
        continue;
      }
      const removed = removal;
      const doneJobIds = window.note(step);
      removal = this.#remove(lease, doneJobIds);
      if (!(await removed)) break;
    }
    // Another worker may hold the lane now.
    const end = isDone() ? 'finish' : 'giveBack';
    window.forget();
    scheduler.forget(this.#lane);
    return end;
  }

  /**
   * Removes jobs that took effect, except for the leased one. `complete` would keep the leased job, because stores keep
   * a locked job; omitting it saves a command. A job that could not be removed is skipped when it is leased: see `isDone`.
   * @returns false if the lease is lost
   */
  #remove(lease: Lease, jobIds: readonly string[]): Promise<boolean> | true {
    const removable = jobIds.filter((jobId) => jobId !== lease.id);
    return removable.length === 0 || this.#context.laneStore.complete(lease, removable).catch(() => true);
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
