import type { Log } from '../../src/platform/log.ts';
import { backOff } from '../../src/platform/poll.ts';
import type { Pool } from '../../src/store/database.ts';
import { causeOf, sqlstateOf } from '../../src/store/error-cause.ts';
import type { Limits } from '../../src/store/transactions.ts';
import type { WriteRefusals } from '../../src/store/write-refusals.ts';
import { NO_POISON, type Poison } from '../batch/apply.ts';
import { Attempts } from '../batch/attempts.ts';
import { blameOf, isWell } from '../batch/failures.ts';
import { type Delivery, type PartSize, partsOf } from '../batch/open.ts';
import { type BatchResult, type LeftOfEnvelope, PART_MS, type Part } from '../batch/parts.ts';
import { reportBatch, reportRetry } from '../batch/report.ts';
import { LIMITS, runBatch } from '../batch/run-batch.ts';
import type { WorkItem } from '../batch/work-item.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { Accounts, BYTES_PER_UNIT, SLICE_MS } from './accounts.ts';
import { Isolation } from './isolation.ts';
import { type Batch, nextBatch, type WaitingEnvelope } from './next-batch.ts';
import { type Slot, Slots } from './slots.ts';

/** Target size of a transaction in objects and in bytes of JSON text. Larger ones would only increase waiting times. */
export const ENOUGH_OBJECTS = 8000;
export const ENOUGH_BYTES = 8_388_608;

/** Maximum concurrent transactions, without retries: a third one would find both cores or the disk busy. */
const MAX_TRANSACTIONS = 2;

/** Maximum units of a small batch: it takes little time even alongside two transactions of a slice each. */
const SMALL_BATCH = 64;

/** Timeouts in milliseconds while several workspaces send. They never count against an object: see `#noteTimeout`. */
export const SHARED_LIMITS: Limits = { statement: 400, lock: 200 };

/**
 * Timeouts in milliseconds of batches after a failure: `SPLIT_LIMITS` for several objects, `ALONE_LIMITS` for one. A slow valid
 * object may exceed the first, but not the second.
 */
export const SPLIT_LIMITS: Limits = { statement: 2000, lock: 1200 };
export const ALONE_LIMITS: Limits = { statement: 8000, lock: 5000 };

/** Milliseconds before a batch is retried while Postgres is not available: first and maximum. */
const FIRST_RETRY_MS = 20;
const MAX_RETRY_MS = 1000;

/** Milliseconds of waiting for a slot after which the window is refreshed and the batch chosen again. */
const STALE_MS = 20;

/** Milliseconds until a lane without an applicable envelope is checked again. */
const WAIT_MS = 20;

/** Number of objects in a first round if the cost of a workspace's objects has not been measured yet. */
const FIRST_ROUND = 64;

/** SQLSTATEs of a statement timeout (`query_canceled`) and of a lock timeout (`lock_not_available`). */
const STATEMENT_TIMEOUT = '57014';
const LOCK_TIMEOUT = '55P03';

/** A waiting envelope; `delivery` is its data, once it has been read. */
export interface WaitingDelivery extends WaitingEnvelope {
  delivery?: Delivery;
}

/** A lane as the scheduler sees it. */
export interface LaneView {
  lane: number;
  /** Returns the envelopes of one snapshot, from the head of the lane without a gap. */
  envelopes(): readonly WaitingDelivery[];
  /** Takes a new snapshot. */
  refresh?(): Promise<unknown>;
  /** Batch size limit as a fraction of a full transaction; 1 by default. */
  enough?: number;
}

/** Result of one step of a lane. */
export type Step =
  /**
   * `done`: ledger ids of finished envelopes. `left`: numbers of remaining objects of the other envelopes, by ledger id.
   * Both are empty after a failed attempt.
   */
  | { kind: 'applied'; done: readonly string[]; left: ReadonlyMap<string, LeftOfEnvelope> }
  /** No envelope can be applied for this many milliseconds. */
  | { kind: 'waits'; milliseconds: number }
  /** The process is stopping. */
  | { kind: 'abandoned' };

const NOTHING_YET: Step & { kind: 'applied' } = { kind: 'applied', done: [], left: new Map() };

interface SchedulerOptions {
  metrics: WorkerMetrics;
  /** Receives the results of the batches. */
  writes?: WriteRefusals;
  log: Log;
  /** UUID of this run of the process; a new one by default. */
  processId?: string;
  /** Called with the ids of new dead letters. */
  onDeadLetters?(ids: string[]): void;
  /** Called after merges or deletes, which leave cleanup work outside the lanes. */
  onTombstones?(): void;
}

/** A batch with the deliveries that it takes from a lane. */
interface Chosen {
  lane: number;
  batch: Batch;
  deliveries: Delivery[];
  /** Whether several workspaces send at present. */
  isShared: boolean;
  /**
   * Total size, by workspace, of the envelope parts from which the batch takes objects. The batch may take only some of
   * these objects.
   */
  texts: ReadonlyMap<string, PartSize>;
  /** The only workspace of the batch; undefined if it has several. */
  only: string | undefined;
  /** Maximum number of objects that the transaction applies. */
  objects: number;
}

/** A failure of a batch: `item` is its first object, if the batch is of a workspace whose batches failed before. */
interface Failure {
  error: unknown;
  item: WorkItem | undefined;
  part: Part;
}

/** State of a lane after failures. */
interface LaneState {
  isolation: Isolation;
  /** Milliseconds until the next attempt, while Postgres does not answer; undefined while it does. */
  nextWait: (() => number) | undefined;
}

/**
 * Applies the batches of all lanes of this process. A step chooses a batch of a lane (next-batch.ts) and applies it in
 * one transaction. A failed batch is split: by workspace, in 16 parts, and into single objects (isolation.ts).
 */
export class Scheduler {
  readonly accounts = new Accounts();
  readonly #pool: Pool;
  readonly #options: SchedulerOptions;
  readonly #slots: Slots;
  /** Slots for small batches while several workspaces send, so that they do not wait for another workspace's slice. */
  readonly #slotsOfSmall: Slots | undefined;
  /** Slots for batches that failed before, so that slow or failing objects do not block other workspaces. */
  readonly #slotsOfTroubled: Slots;
  readonly #abandon = new AbortController();
  readonly #attempts: Attempts;
  readonly #lanes = new Map<number, LaneState>();

  constructor(pool: Pool, options: SchedulerOptions) {
    const { log, processId } = options;
    this.#pool = pool;
    this.#options = options;
    // One connection is reserved for the other queries of this process.
    const connections = Math.max(1, pool.options.max - 1);
    this.#slots = new Slots(Math.min(MAX_TRANSACTIONS, connections));
    const small = connections > MAX_TRANSACTIONS + 1 ? 1 : 0;
    this.#slotsOfSmall = small > 0 ? new Slots(small) : undefined;
    this.#slotsOfTroubled = new Slots(Math.max(1, connections - MAX_TRANSACTIONS - small));
    this.#attempts = new Attempts({ pool, processId, log });
  }

  /** Chooses a batch of a lane and applies it. Callers run one step per lane at a time. Never rejects. */
  async step(view: LaneView): Promise<Step> {
    const turn = await this.#turnOf(view);
    if (!('slot' in turn)) return turn;
    const { slot, chosen } = turn;
    try {
      await this.#attempts.begin(chosen.deliveries);
      if (this.#isolateSuspects(chosen)) return NOTHING_YET;
      this.accounts.begin(chosen.batch.start);
      try {
        return await this.#apply(chosen);
      } finally {
        this.accounts.end();
      }
    } finally {
      slot.release();
    }
  }

  /** Stops applying. Envelopes that have not taken effect are delivered again to another worker. */
  abandon(): void {
    this.#abandon.abort();
  }

  /** @param withTroubled whether the batch may need a slot for troubled batches */
  #choose({ lane, envelopes, enough = 1 }: LaneView, withTroubled = true): Chosen | undefined {
    const window = envelopes();
    const slice = this.accounts.slice();
    const { isolation } = this.#stateOf(lane);
    const batch = nextBatch(window, this.accounts, {
      ...{ objects: ENOUGH_OBJECTS * enough, bytes: ENOUGH_BYTES * enough, slice },
      isolation: withTroubled ? isolation : isolation.untroubled(),
    });
    if (!batch) return undefined;
    const envelopeById = new Map(window.map((one) => [one.id, one]));
    const texts = new Map<string, PartSize>();
    const deliveries = batch.envelopes.map(({ id, workspaces }) => {
      const { delivery, parts } = envelopeById.get(id)!;
      for (const one of workspaces) {
        const { objects, bytes } = parts!.get(one)!;
        const before = texts.get(one) ?? { objects: 0, bytes: 0 };
        texts.set(one, { objects: before.objects + objects, bytes: before.bytes + bytes });
      }
      return workspaces.size < parts!.size ? { ...delivery!, only: workspaces } : delivery!;
    });
    const [first, ...others] = batch.objects.keys();
    const only = others.length === 0 ? first : undefined;
    // The transaction of a single workspace may take more than its share of a slice: see `sharesOf`.
    const objects =
      only === undefined
        ? sumOf(batch.objects)
        : Math.min(isolation.maxObjects(only), texts.get(only)!.objects);
    return { lane, batch, deliveries, isShared: slice !== undefined, texts, only, objects };
  }

  /** Forgets the failures of a lane, because another worker may hold it now. */
  forget(lane: number): void {
    this.#lanes.delete(lane);
  }

  #stateOf(lane: number): LaneState {
    const existing = this.#lanes.get(lane);
    if (existing) return existing;
    const state = { isolation: new Isolation(), nextWait: undefined };
    this.#lanes.set(lane, state);
    return state;
  }

  /**
   * Isolates envelopes during which a process ended: their objects are applied one at a time.
   *
   * @returns whether the batch has to be chosen again
   */
  #isolateSuspects({ lane, deliveries, objects: all }: Chosen): boolean {
    const last = deliveries.findLastIndex(({ id }) => this.#attempts.isSuspect(id));
    if (last < 0 || all <= 1) return false;
    const objects = new Map<string, number>();
    for (const { envelope, only } of deliveries.slice(0, last + 1))
      for (const [workspaceId, size] of partsOf(envelope, 0))
        if (only?.has(workspaceId) ?? true)
          objects.set(workspaceId, (objects.get(workspaceId) ?? 0) + size.objects);
    const { isolation } = this.#stateOf(lane);
    for (const [workspaceId, count] of objects) isolation.applyOneByOne(workspaceId, count);
    return true;
  }

  /** Chooses a batch and waits for a slot that this batch may use. The slot is held only if there is a batch. */
  async #turnOf(view: LaneView): Promise<{ slot: Slot; chosen: Chosen } | Step> {
    const servedUntil = () => this.#choose(view)?.batch.start ?? Number.POSITIVE_INFINITY;
    for (let chosen = this.#choose(view); ; ) {
      if (this.#abandon.signal.aborted) return { kind: 'abandoned' };
      // The lane does not wait for a slot that a slow object may hold for seconds: its other workspaces go on.
      if (chosen && this.#isTroubled(chosen) && !this.#slotsOfTroubled.hasFree)
        chosen = this.#choose(view, false);
      if (!chosen) return { kind: 'waits', milliseconds: WAIT_MS };
      const slots = this.#slotsFor(chosen);
      const slot = await slots.take(servedUntil);
      if (slot.waited > STALE_MS) {
        await view.refresh?.();
        chosen = this.#choose(view);
      }
      if (chosen && !this.#abandon.signal.aborted && this.#mayUse(slots, chosen)) return { slot, chosen };
      slot.release();
    }
  }

  #slotsFor(chosen: Chosen): Slots {
    if (this.#isTroubled(chosen)) return this.#slotsOfTroubled;
    const isFree = !this.#slots.hasFree && this.#slotsOfSmall?.hasFree;
    return isFree && isSmall(chosen) ? this.#slotsOfSmall! : this.#slots;
  }

  /**
   * Returns whether a batch may use a slot. New envelopes can change the next batch of a lane while the lane waits, so
   * that the batch needs a slot of another kind.
   */
  #mayUse(slots: Slots, chosen: Chosen): boolean {
    if (this.#isTroubled(chosen)) return slots === this.#slotsOfTroubled;
    return slots === this.#slots || (slots === this.#slotsOfSmall && isSmall(chosen));
  }

  #isTroubled({ lane, only }: Chosen): boolean {
    return only !== undefined && this.#stateOf(lane).isolation.isTroubled(only);
  }

  async #apply(chosen: Chosen): Promise<Step> {
    const { batch, deliveries } = chosen;
    const started = performance.now();
    let item: WorkItem | undefined;
    const part = this.#partFor(chosen, (first) => {
      item = first;
    });
    try {
      const result = await this.#run(deliveries, part);
      const milliseconds = performance.now() - started;
      this.#report(deliveries, result, milliseconds);
      this.#noteSuccess(chosen, result);
      if (result.kind === 'applied') this.#charge(chosen, result, milliseconds);
      return this.#stepOf(deliveries, result);
    } catch (error) {
      for (const workspaceId of batch.objects.keys())
        this.accounts.chargeTime(workspaceId, (performance.now() - started) / batch.objects.size);
      return this.#noteFailure(chosen, { error, item, part });
    }
  }

  /** Runs a batch. An object that may have ended a process runs while no other such object does. */
  #run(deliveries: Delivery[], part: Part): Promise<BatchResult> {
    if (!deliveries.some(({ id }) => this.#attempts.isSuspect(id)))
      return runBatch(this.#pool, deliveries, part);
    const { metrics, log } = this.#options;
    return this.#attempts.alone((begin) => {
      const beginFirst = async (items: readonly WorkItem[]): Promise<Poison> => {
        const poison = (await part.begin?.(items)) ?? NO_POISON;
        const [first] = items;
        if (!first) return poison;
        const endedProcesses = await begin(first.object.id);
        for (const id of endedProcesses.keys()) {
          metrics.setAside.inc();
          log.error(
            { object_id: id, envelopes: deliveries.map((one) => one.id) },
            'an object ended its process repeatedly; set aside',
          );
        }
        return new Map([...poison, ...endedProcesses]);
      };
      return runBatch(this.#pool, deliveries, { ...part, begin: beginFirst });
    });
  }

  #partFor(
    { lane, batch, isShared, only, objects }: Chosen,
    onFirst: (first: WorkItem | undefined) => void,
  ): Part {
    const { isolation } = this.#stateOf(lane);
    const size = this.#firstRound(batch.objects, only);
    const shares = only === undefined ? batch.shares : sharesOf(only, isolation);
    const part = {
      milliseconds: isShared ? SLICE_MS : PART_MS,
      ...(shares.size > 0 && { shares }),
      ...(size !== undefined && { size }),
      limits: isShared ? SHARED_LIMITS : LIMITS,
    };
    if (only === undefined || !isolation.isTroubled(only)) return part;
    const begin = async (items: readonly WorkItem[]): Promise<Poison> => {
      onFirst(items[0]);
      return isolation.poisonOf(only);
    };
    const limits = objects > 1 ? SPLIT_LIMITS : ALONE_LIMITS;
    return {
      ...part,
      ...{ begin, hasSavepoints: isolation.hasSavepoints(only) },
      ...((!isShared || isolation.needsTime(only)) && { limits }),
    };
  }

  /** Limits the first round, because data loaded for objects that do not fit into the time has to be loaded again. */
  #firstRound(objects: Batch['objects'], only: string | undefined): number | undefined {
    const measured = only === undefined ? undefined : this.accounts.firstRound(only);
    return measured ?? (this.accounts.areMeasured(objects.keys()) ? undefined : FIRST_ROUND);
  }

  #charge(
    { batch, texts }: Chosen,
    { used: { objects, loaded, isCut, nextRound } }: BatchResult & { kind: 'applied' },
    milliseconds: number,
  ): void {
    const units = new Map<string, number>();
    for (const workspaceId of batch.objects.keys()) {
      const count = objects.get(workspaceId) ?? 0;
      const whole = texts.get(workspaceId)!;
      const text = whole.objects > 0 ? (whole.bytes * count) / whole.objects : 0;
      units.set(workspaceId, count + (text + (loaded.get(workspaceId) ?? 0)) / BYTES_PER_UNIT);
    }
    this.accounts.charge({ units, objects, milliseconds, isCut });
    const [only, ...others] = batch.objects.keys();
    if (others.length === 0) this.accounts.noteRound(only!, isCut ? nextRound : undefined);
  }

  #stepOf(deliveries: readonly Delivery[], result: BatchResult): Step {
    const left = (result.kind === 'applied' && result.left) || NOTHING_YET.left;
    const done = deliveries.flatMap(({ id }) => (left.has(id) ? [] : [id]));
    this.#attempts.end(done);
    return { kind: 'applied', done, left };
  }

  #noteSuccess({ lane, batch }: Chosen, result: BatchResult): void {
    const state = this.#stateOf(lane);
    state.nextWait = undefined;
    this.#options.writes?.noteSuccess();
    for (const [workspaceId, objects] of batch.objects) {
      // An envelope that had been applied before has no objects in the result.
      const applied = result.kind === 'applied' ? (result.used.objects.get(workspaceId) ?? 0) : objects;
      state.isolation.noteSuccess(workspaceId, applied);
    }
  }

  /** Decides how a failed batch is retried. */
  async #noteFailure(chosen: Chosen, { error, item, part: { limits, size } }: Failure): Promise<Step> {
    const { lane, batch, deliveries, only, objects } = chosen;
    const { metrics, log } = this.#options;
    const { isolation } = this.#stateOf(lane);
    const envelopes = deliveries.map(({ id }) => id);
    metrics.retries.inc();
    this.#options.writes?.noteFailure(error);
    reportRetry(log, { error, envelopes });
    if (limits === SHARED_LIMITS && this.#noteTimeout(chosen, error, size)) return NOTHING_YET;
    if (only !== undefined && sqlstateOf(error) === LOCK_TIMEOUT) {
      // Another session holds the lock: other workspaces of the lane need not wait for it.
      isolation.letRest(only);
      return NOTHING_YET;
    }
    if (await this.#isAway(error)) {
      const state = this.#stateOf(lane);
      state.nextWait ??= backOff(FIRST_RETRY_MS, MAX_RETRY_MS);
      return this.#abandon.signal.aborted
        ? { kind: 'abandoned' }
        : { kind: 'waits', milliseconds: state.nextWait() };
    }
    if (only === undefined) {
      isolation.separate(batch.objects.keys());
      return NOTHING_YET;
    }
    const next = isolation.noteFailure(only, { error, objects, item });
    if (next === 'poison')
      log.error(
        { object_id: item?.object.id, envelopes, err: error },
        'object cannot be applied; moved to dead letters',
      );
    return this.#abandon.signal.aborted ? { kind: 'abandoned' } : NOTHING_YET;
  }

  /** Returns whether the environment caused an error: the batch is retried as it is. */
  async #isAway(error: unknown): Promise<boolean> {
    if (blameOf(error) === 'refused' || causeOf(error) === 'statement') return false;
    return causeOf(error) === 'infrastructure' || !(await isWell(this.#pool));
  }

  /** Handles a timeout by SHARED_LIMITS, which does not count as a failure. @returns whether the error is one */
  #noteTimeout({ lane, batch, only, objects }: Chosen, error: unknown, firstRound = objects): boolean {
    const state = sqlstateOf(error);
    if (state !== STATEMENT_TIMEOUT && state !== LOCK_TIMEOUT) return false;
    const { isolation } = this.#stateOf(lane);
    if (only === undefined) isolation.separate(batch.objects.keys());
    else if (state === LOCK_TIMEOUT) isolation.letRest(only);
    else isolation.noteTimeout(only, Math.min(objects, firstRound));
    return true;
  }

  #report(deliveries: Delivery[], result: BatchResult, milliseconds: number): void {
    const { metrics, log, onDeadLetters, onTombstones } = this.#options;
    reportBatch({ deliveries, result, milliseconds }, { metrics, log });
    if (result.kind !== 'applied') return;
    const { deadLetters, leavesTombstones } = result;
    if (deadLetters.length > 0) onDeadLetters?.(deadLetters);
    if (leavesTombstones) onTombstones?.();
  }
}

/** Returns whether a batch is small enough for the slots of small batches. */
const isSmall = ({ batch, isShared }: Chosen): boolean => isShared && batch.units <= SMALL_BATCH;

/**
 * Returns the object limit of a batch of a single workspace; empty unless its batches have failed. The batch continues
 * until its time is over, because rounds with many objects about the same users load each user once.
 */
function sharesOf(only: string, isolation: Isolation): ReadonlyMap<string, number> {
  const max = isolation.maxObjects(only);
  return new Map(max < Number.POSITIVE_INFINITY ? [[only, max]] : []);
}

function sumOf(counts: ReadonlyMap<string, number>): number {
  let sum = 0;
  for (const count of counts.values()) sum += count;
  return sum;
}

/** Creates a waiting envelope from a delivery. */
export function waiting(delivery: Delivery, bytes = 0): WaitingDelivery & { delivery: Delivery } {
  return { id: delivery.id, tag: undefined, parts: partsOf(delivery.envelope, bytes), delivery };
}

/** Returns the envelopes, or their parts, that a step has not applied. */
export function remaining(
  envelopes: readonly WaitingDelivery[],
  { done, left }: Step & { kind: 'applied' },
): WaitingDelivery[] {
  if (done.length === 0 && left.size === 0) return [...envelopes];
  const gone = new Set(done);
  return envelopes.flatMap((one) => {
    if (gone.has(one.id)) return [];
    const counts = left.get(one.id);
    if (!counts) return [one];
    const parts = [...counts].map(([workspaceId, objects]) => {
      const { objects: all = objects, bytes = 0 } = one.parts?.get(workspaceId) ?? {};
      return [workspaceId, { objects, bytes: all > 0 ? (bytes * objects) / all : 0 }] as const;
    });
    return [{ ...one, parts: new Map(parts) }];
  });
}
