import type { Log } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import { tagOf } from '../../src/queue/lanes.ts';
import type { Pool } from '../../src/store/database.ts';
import { sqlstateOf } from '../../src/store/error-cause.ts';
import type { Limits } from '../../src/store/transactions.ts';
import { Attempts } from '../batch/attempts.ts';
import {
  blameOf,
  createFailures,
  type Failed,
  FIRST_RETRY_MS,
  isOurStatement,
  LONGEST_RETRY_MS,
  triesOf,
} from '../batch/failures.ts';
import { type Delivery, type PartSize, partsOf } from '../batch/open.ts';
import { type BatchResult, type LeftOfEnvelope, PART_MS, type Part } from '../batch/parts.ts';
import { reportBatch, reportRetry } from '../batch/report.ts';
import { applyTogether, HOLDS_ONE, LIMITS } from '../batch/run-batch.ts';
import { Apart } from '../batch/settle-alone.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { Accounts, BYTES_PER_UNIT, SLICE_MS } from './accounts.ts';
import { type Batch, nextBatch, type WaitingEnvelope } from './next-batch.ts';
import { type Slot, Slots } from './slots.ts';

/** Target size of a transaction in objects and in bytes of JSON text. Larger ones would only increase waiting times. */
export const ENOUGH_OBJECTS = 4000;
export const ENOUGH_BYTES = 4_194_304;

/** Maximum concurrent transactions, without retries: a third one would find both cores or the disk busy. */
const MAX_TRANSACTIONS = 2;

/** Maximum units of a small batch: it takes little time even alongside two transactions of a slice each. */
const SMALL_BATCH = 64;

/** Timeouts in milliseconds while several workspaces send. They never count against an object: see `#noteTimeout`. */
export const SHARED_LIMITS: Limits = { statement: 400, lock: 200 };

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
   * `done`: ids of finished envelopes. `left`: numbers of remaining objects of the other envelopes. Both are empty
   * after a failed attempt.
   */
  | { kind: 'applied'; done: readonly string[]; left: ReadonlyMap<string, LeftOfEnvelope> }
  /** No envelope can be applied for this many milliseconds. */
  | { kind: 'waits'; milliseconds: number }
  /** The process is stopping. */
  | { kind: 'abandoned' };

const NOTHING_YET: Step & { kind: 'applied' } = { kind: 'applied', done: [], left: new Map() };

const NO_SHARES: ReadonlyMap<string, number> = new Map();

const UNKNOWN: Failed = { times: 0, signature: undefined };

interface SchedulerOptions {
  metrics: WorkerMetrics;
  log: Log;
  /** UUID of this run of the process; a new one by default. */
  processId?: string;
  /** Called with the ids of new dead letters. */
  onDeadLetters?(ids: string[]): void;
  /** Called after merges or deletes, which leave cleanup work outside the lanes. */
  onTombstones?(): void;
}

/** Consecutive failures of the batches of a lane, or of one workspace in it. */
interface Failing {
  failures: ReturnType<typeof createFailures>;
  nextWait(): number;
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
}

/**
 * Applies the batches of all lanes of this process. A step chooses a batch of a lane (next-batch.ts) and applies it in
 * one transaction. A failed batch of several workspaces is retried by workspace. If that fails too, the objects are
 * retried by envelope and then individually (settle-alone.ts).
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
  readonly #apart: Apart;
  readonly #failing = new Map<string, Failing>();
  /** Workspaces with a single object that exceeded SHARED_LIMITS. */
  readonly #slow = new Set<string>();
  /** Completion of the latest `apply` call, by lane. */
  readonly #handedIn = new Map<number, Promise<void>>();

  constructor(pool: Pool, options: SchedulerOptions) {
    const { metrics, log, processId } = options;
    this.#pool = pool;
    this.#options = options;
    // One connection is reserved for the other queries of this process.
    const connections = Math.max(1, pool.options.max - 1);
    this.#slots = new Slots(Math.min(MAX_TRANSACTIONS, connections));
    const small = connections > MAX_TRANSACTIONS + 1 ? 1 : 0;
    this.#slotsOfSmall = small > 0 ? new Slots(small) : undefined;
    this.#slotsOfTroubled = new Slots(Math.max(1, connections - MAX_TRANSACTIONS - small));
    this.#attempts = new Attempts({ pool, processId, log });
    const report = this.#report.bind(this);
    this.#apart = new Apart({ pool, attempts: this.#attempts, metrics, log, report });
  }

  /** Chooses a batch of a lane and applies it. Callers run one step per lane at a time. Never rejects. */
  async step(view: LaneView): Promise<Step> {
    const turn = await this.#turnOf(view);
    if (!('slot' in turn)) return turn;
    const { slot, chosen } = turn;
    try {
      await this.#attempts.begin(chosen.deliveries);
      // A process died while it applied one of these envelopes: the next step applies that envelope alone.
      const { batch, deliveries } = chosen;
      if (!batch.isTroubled && deliveries.some(({ id }) => this.#attempts.isSuspect(id))) return NOTHING_YET;
      this.accounts.begin(batch.start);
      try {
        return batch.isTroubled ? await this.#applyAlone(chosen) : await this.#applyTogether(chosen);
      } finally {
        this.accounts.end();
      }
    } finally {
      slot.release();
    }
  }

  /**
   * Applies envelopes in the given order per lane, after the envelopes of earlier calls for the same lanes. Resolves
   * when all of them have taken effect; never rejects. After `abandon`, the promise may stay pending.
   */
  async apply(...deliveries: Delivery[]): Promise<void> {
    const lanes = new Map<number, Delivery[]>();
    for (const delivery of deliveries)
      lanes.set(delivery.lane, [...(lanes.get(delivery.lane) ?? []), delivery]);
    const applied = [...lanes].map(([lane, own]) => {
      const before = this.#handedIn.get(lane) ?? Promise.resolve();
      const its = before.then(() => this.#applyAll(lane, own));
      this.#handedIn.set(lane, its);
      return its;
    });
    await Promise.all(applied);
  }

  /** Stops applying. Envelopes that have not taken effect are delivered again to another worker. */
  abandon(): void {
    this.#abandon.abort();
  }

  async #applyAll(lane: number, deliveries: Delivery[]): Promise<void> {
    let envelopes: WaitingDelivery[] = deliveries.map((delivery) => waiting(delivery));
    for (const { parts } of envelopes) for (const id of parts!.keys()) this.accounts.see(tagOf(id));
    while (envelopes.length > 0) {
      const step = await this.step({ lane, envelopes: () => envelopes });
      if (step.kind === 'abandoned') return new Promise(() => {});
      if (step.kind === 'waits') await rest(step.milliseconds, this.#abandon.signal);
      else envelopes = remaining(envelopes, step);
    }
  }

  #choose({ lane, envelopes, enough = 1 }: LaneView): Chosen | undefined {
    const window = envelopes();
    if (!this.#apart.isEmpty) for (const one of window) one.isTroubled = this.#apart.has(one.id);
    const slice = this.accounts.slice();
    const batch = nextBatch(window, this.accounts, {
      ...{ objects: ENOUGH_OBJECTS * enough, bytes: ENOUGH_BYTES * enough, slice },
    });
    if (!batch) return undefined;
    const known = new Map(window.map((one) => [one.id, one]));
    const texts = new Map<string, PartSize>();
    const deliveries = batch.envelopes.map(({ id, workspaces }) => {
      const { delivery, parts } = known.get(id)!;
      for (const one of workspaces) {
        const { objects, bytes } = parts!.get(one)!;
        const before = texts.get(one) ?? { objects: 0, bytes: 0 };
        texts.set(one, { objects: before.objects + objects, bytes: before.bytes + bytes });
      }
      return workspaces.size < parts!.size ? { ...delivery!, only: workspaces } : delivery!;
    });
    return { lane, batch, deliveries, isShared: slice !== undefined, texts };
  }

  /** Chooses a batch and waits for a slot that this batch may use. The slot is held only if there is a batch. */
  async #turnOf(view: LaneView): Promise<{ slot: Slot; chosen: Chosen } | Step> {
    const servedUntil = () => this.#choose(view)?.batch.start ?? Number.POSITIVE_INFINITY;
    for (let chosen = this.#choose(view); ; ) {
      if (this.#abandon.signal.aborted) return { kind: 'abandoned' };
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

  #isTroubled({ lane, batch }: Chosen): boolean {
    return batch.isTroubled || this.#failing.has(keyOf(lane, batch));
  }

  async #applyTogether(chosen: Chosen): Promise<Step> {
    const { batch, deliveries } = chosen;
    const part = this.#partFor(chosen);
    const started = performance.now();
    try {
      const result = await applyTogether(this.#pool, deliveries, part);
      const milliseconds = performance.now() - started;
      this.#report(deliveries, result, milliseconds);
      this.#noteSuccess(chosen);
      if (result.kind === 'applied') this.#charge(chosen, result, milliseconds);
      return this.#stepOf(deliveries, result);
    } catch (error) {
      for (const workspaceId of batch.objects.keys())
        this.accounts.chargeTime(workspaceId, (performance.now() - started) / batch.objects.size);
      return this.#noteFailure(chosen, error, part);
    }
  }

  #partFor({ batch, isShared }: Chosen): Part {
    const { objects } = batch;
    const [first, ...others] = objects.keys();
    const only = others.length === 0 ? first : undefined;
    const isSlow = only !== undefined && this.#slow.has(only);
    const size = this.#firstRound(objects, only);
    const shares = this.#sharesOf(batch, only);
    return {
      milliseconds: isShared ? SLICE_MS : PART_MS,
      ...(shares.size > 0 && { shares }),
      ...(size !== undefined && { size }),
      limits: isShared && !isSlow ? SHARED_LIMITS : LIMITS,
    };
  }

  /** Limits the first round, because data loaded for objects that do not fit into the time has to be loaded again. */
  #firstRound(objects: Batch['objects'], only: string | undefined): number | undefined {
    const known = only === undefined ? undefined : this.accounts.firstRound(only);
    return known ?? (this.accounts.areMeasured(objects.keys()) ? undefined : FIRST_ROUND);
  }

  /**
   * Removes the slice limit from a batch of a single workspace, so that it continues until its time is over. A large
   * round loads a user once for all of its objects.
   */
  #sharesOf({ shares }: Batch, only: string | undefined): ReadonlyMap<string, number> {
    const most = only === undefined ? 0 : this.accounts.mostObjects(only);
    if (only === undefined) return shares;
    return most < Number.POSITIVE_INFINITY ? new Map([[only, most]]) : NO_SHARES;
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

  /** Applies a part of one envelope alone. */
  async #applyAlone({ batch, deliveries, isShared }: Chosen): Promise<Step> {
    const [delivery] = deliveries;
    const started = performance.now();
    const settled = await this.#apart.settle(delivery!, { milliseconds: isShared ? SLICE_MS : PART_MS });
    for (const workspaceId of batch.objects.keys()) {
      this.accounts.chargeTime(workspaceId, (performance.now() - started) / batch.objects.size);
      if (settled === 'failed') this.accounts.letRest(workspaceId);
      else this.accounts.endRest(workspaceId);
    }
    return settled === 'failed' ? NOTHING_YET : this.#stepOf(deliveries, settled);
  }

  #stepOf(deliveries: readonly Delivery[], result: BatchResult): Step {
    const left = (result.kind === 'applied' && result.left) || NOTHING_YET.left;
    const done = deliveries.flatMap(({ id }) => (left.has(id) ? [] : [id]));
    this.#attempts.end(done);
    return { kind: 'applied', done, left };
  }

  #noteSuccess({ lane, batch }: Chosen): void {
    if (this.#failing.size > 0) this.#failing.delete(keyOf(lane, batch));
    if (this.#slow.size > 0) for (const workspaceId of batch.objects.keys()) this.#slow.delete(workspaceId);
  }

  /** Decides how a failed batch is retried. */
  async #noteFailure(chosen: Chosen, error: unknown, { limits }: Part): Promise<Step> {
    const { lane, batch, deliveries } = chosen;
    const { metrics, log } = this.#options;
    const envelopes = deliveries.map(({ id }) => id);
    const fault = blameOf(error);
    const failing = this.#failing.get(keyOf(lane, batch)) ?? {
      failures: createFailures(this.#pool),
      nextWait: backOff(FIRST_RETRY_MS, LONGEST_RETRY_MS),
    };
    this.#failing.set(keyOf(lane, batch), failing);
    metrics.retries.inc();
    if (fault === 'refused') {
      log.warn({ err: error, envelopes }, HOLDS_ONE);
      return this.#split(chosen, failing.failures.sofar());
    }
    reportRetry(log, { error, envelopes });
    // Objects that do not need the rejected statement can still take effect.
    if (isOurStatement(error)) return this.#split(chosen, UNKNOWN);
    if (limits === SHARED_LIMITS && this.#noteTimeout(chosen, error)) return NOTHING_YET;
    const times = await failing.failures.count(error);
    const [only, ...others] = batch.objects.keys();
    if (times > 0 && (fault === 'lasting' || times >= triesOf(error))) {
      log.error({ err: error, envelopes }, 'batch failed repeatedly; retrying its objects individually');
      for (const [workspaceId, objects] of batch.objects) this.accounts.shrink(workspaceId, objects);
      return this.#split(chosen, failing.failures.sofar());
    }
    if (this.#abandon.signal.aborted) return { kind: 'abandoned' };
    // Each workspace gets batches of its own, so that objects of the other workspaces take effect.
    if (times > 0 && others.length > 0) return this.#split(chosen, UNKNOWN);
    if (times > 0) {
      this.accounts.letRest(only!);
      return NOTHING_YET;
    }
    return { kind: 'waits', milliseconds: failing.nextWait() };
  }

  /**
   * Handles a timeout that SHARED_LIMITS caused. It does not count as a failure of the objects.
   * @returns whether the error is such a timeout
   */
  #noteTimeout({ lane, batch }: Chosen, error: unknown): boolean {
    const state = sqlstateOf(error);
    if (state !== STATEMENT_TIMEOUT && state !== LOCK_TIMEOUT) return false;
    const [only, ...others] = batch.objects.keys();
    if (others.length > 0) {
      this.accounts.part(batch.objects.keys());
      // All shared batches of the lane are counted under one key, and the later ones have not failed.
      this.#failing.delete(keyOf(lane, batch));
    } else if (state === LOCK_TIMEOUT) this.accounts.letRest(only!);
    else if (batch.objects.get(only!)! > 1) this.accounts.shrink(only!, batch.objects.get(only!)!);
    else this.#slow.add(only!);
    return true;
  }

  /** Splits a failed batch: one of several workspaces by workspace, one of a single workspace by envelope. */
  #split({ lane, batch, deliveries }: Chosen, failed: Failed): Step {
    if (batch.objects.size > 1) this.accounts.part(batch.objects.keys());
    else
      this.#apart.add(
        deliveries.map(({ id }) => id),
        { failed, whole: deliveries.length === 1 && deliveries[0]!.only === undefined },
      );
    this.#failing.delete(keyOf(lane, batch));
    return NOTHING_YET;
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

/** Returns the key for counting failures: one workspace in a lane, or all shared batches of a lane. */
function keyOf(lane: number, { objects }: Batch): string {
  const [only] = objects.keys();
  return objects.size === 1 ? `${lane} ${only}` : `${lane}`;
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
