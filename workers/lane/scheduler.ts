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
import { type Delivery, partsOf } from '../batch/open.ts';
import { type BatchResult, type LeftOfEnvelope, PART_MS, type Part } from '../batch/parts.ts';
import { reportBatch, reportRetry } from '../batch/report.ts';
import { applyTogether, HOLDS_ONE, LIMITS } from '../batch/run-batch.ts';
import { Apart } from '../batch/settle-alone.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { Accounts, BYTES_PER_UNIT, SLICE_MS } from './accounts.ts';
import { type Batch, nextBatch, type WaitingEnvelope } from './next-batch.ts';
import { type Slot, Slots } from './slots.ts';

/** Objects, and bytes of their JSON text, that are enough for a transaction: more would only make everyone wait longer. */
export const ENOUGH_OBJECTS = 4000;
export const ENOUGH_BYTES = 4_194_304;

/** Transactions at once: a third one finds both cores busy, or the disk. Those that failed before are not counted. */
const MAX_TRANSACTIONS = 2;

/** Units of a batch that takes little time beside two transactions that take a slice each. */
const SMALL_BATCH = 64;

/** Limits while a second workspace sends: what takes longer is found out without the others. */
export const SHARED_LIMITS: Limits = { statement: 400, lock: 200 };

/** Milliseconds after which a window is read again before a batch is chosen from it. */
const STALE_MS = 20;

/** Milliseconds until a lane in which nothing may take effect is looked at again. */
const WAIT_MS = 20;

/** Objects of a first round where it is not known yet what those of a workspace take. */
const FIRST_ROUND = 64;

/** SQLSTATEs of a statement that took too long, and of a lock that somebody holds. */
const STATEMENT_TIMEOUT = '57014';
const LOCK_TIMEOUT = '55P03';

/** An envelope that waits, and its data once that is read. */
export interface WaitingDelivery extends WaitingEnvelope {
  delivery?: Delivery;
}

/** A lane as the scheduler sees it. */
export interface LaneView {
  lane: number;
  /** From the head of the lane, without a gap, as one snapshot shows them. */
  envelopes(): readonly WaitingDelivery[];
  /** Takes another snapshot. */
  refresh?(): Promise<unknown>;
  /** The part of what is enough for a transaction that is enough here. */
  enough?: number;
}

/** What a step of a lane came to. */
export type Step =
  /** Ids of envelopes of which nothing is left, and what is left of others. Both are empty after a failed attempt. */
  | { kind: 'applied'; done: readonly string[]; left: ReadonlyMap<string, LeftOfEnvelope> }
  /** Nothing may take effect for so long. */
  | { kind: 'waits'; milliseconds: number }
  /** The process ends. */
  | { kind: 'abandoned' };

const NOTHING_YET: Step & { kind: 'applied' } = { kind: 'applied', done: [], left: new Map() };

const NO_SHARES: ReadonlyMap<string, number> = new Map();

const UNKNOWN: Failed = { times: 0, signature: undefined };

interface SchedulerOptions {
  metrics: WorkerMetrics;
  log: Log;
  /** A UUID of this life of the process; absent: a new one. */
  processId?: string;
  /** Told the ids of dead letters that were written. */
  onDeadLetters?(ids: string[]): void;
  /** Told that something is left to do beside the lanes. */
  onTombstones?(): void;
}

/** How batches of a lane, or of one workspace in it, have failed since the last one that took effect. */
interface Failing {
  failures: ReturnType<typeof createFailures>;
  nextWait(): number;
}

/** A batch that was chosen. */
interface Chosen {
  lane: number;
  batch: Batch;
  deliveries: Delivery[];
  /** Whether a second workspace sends. */
  isShared: boolean;
  /** Bytes of JSON text by workspace. */
  bytes: ReadonlyMap<string, number>;
}

/**
 * Applies the batches of all lanes of this process. A step chooses a batch of a lane (next-batch.ts) and applies it in one
 * transaction. A batch of several workspaces that fails is tried again by workspace; what fails then is tried by
 * envelope, and by object (settle-alone.ts).
 */
export class Scheduler {
  readonly accounts = new Accounts();
  readonly #pool: Pool;
  readonly #options: SchedulerOptions;
  readonly #slots: Slots;
  /** Of small batches while others send: they need not wait for a slice of somebody else to end. */
  readonly #slotsOfSmall: Slots | undefined;
  /** Of those that failed before: what is slow or hopeless keeps nobody else from taking effect. */
  readonly #slotsOfTroubled: Slots;
  readonly #abandon = new AbortController();
  readonly #attempts: Attempts;
  readonly #apart: Apart;
  readonly #failing = new Map<string, Failing>();
  /** Workspaces of which a single object took longer than the limits for shared lanes. */
  readonly #slow = new Set<string>();
  /** Ends with what was handed in last, by lane. */
  readonly #handedIn = new Map<number, Promise<void>>();

  constructor(pool: Pool, options: SchedulerOptions) {
    const { metrics, log, processId } = options;
    this.#pool = pool;
    this.#options = options;
    // One connection stays for everything else that this process asks the store.
    const connections = Math.max(1, pool.options.max - 1);
    this.#slots = new Slots(Math.min(MAX_TRANSACTIONS, connections));
    const small = connections > MAX_TRANSACTIONS + 1 ? 1 : 0;
    this.#slotsOfSmall = small > 0 ? new Slots(small) : undefined;
    this.#slotsOfTroubled = new Slots(Math.max(1, connections - MAX_TRANSACTIONS - small));
    this.#attempts = new Attempts({ pool, processId, log });
    const report = this.#report.bind(this);
    this.#apart = new Apart({ pool, attempts: this.#attempts, metrics, log, report });
  }

  /** Chooses a batch of a lane and applies it. One step of a lane runs at a time. Never rejects. */
  async step(view: LaneView): Promise<Step> {
    let chosen = this.#choose(view);
    if (this.#abandon.signal.aborted) return { kind: 'abandoned' };
    if (!chosen) return { kind: 'waits', milliseconds: WAIT_MS };
    const slot = await this.#slotFor(view, chosen);
    try {
      if (slot.waited > STALE_MS) {
        await view.refresh?.();
        chosen = this.#choose(view);
        if (!chosen) return { kind: 'waits', milliseconds: WAIT_MS };
      }
      await this.#attempts.begin(chosen.deliveries);
      // A process ended while it applied one of them: it is to be tried by itself.
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
   * Applies envelopes, whose order in each lane is theirs, after those that were handed in for their lanes before.
   * Resolves when all of them have taken effect; never rejects. After `abandon` it may stay open.
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

  /** Stops applying: what has not taken effect is delivered again to another worker. */
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
    const bytes = new Map<string, number>();
    const deliveries = batch.envelopes.map(({ id, workspaces }) => {
      const { delivery, parts } = known.get(id)!;
      for (const one of workspaces) bytes.set(one, (bytes.get(one) ?? 0) + parts!.get(one)!.bytes);
      return workspaces.size < parts!.size ? { ...delivery!, only: workspaces } : delivery!;
    });
    return { lane, batch, deliveries, isShared: slice !== undefined, bytes };
  }

  #slotFor(view: LaneView, chosen: Chosen): Promise<Slot> {
    const servedUntil = () => this.#choose(view)?.batch.start ?? Number.POSITIVE_INFINITY;
    return this.#slotsFor(chosen).take(servedUntil);
  }

  #slotsFor({ lane, batch, isShared }: Chosen): Slots {
    if (batch.isTroubled || this.#failing.has(keyOf(lane, batch))) return this.#slotsOfTroubled;
    const isSmall = isShared && batch.units <= SMALL_BATCH;
    return (isSmall && !this.#slots.hasFree && this.#slotsOfSmall) || this.#slots;
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

  /** What a first round loads for more than there is time for is loaded again. */
  #firstRound(objects: Batch['objects'], only: string | undefined): number | undefined {
    const known = only === undefined ? undefined : this.accounts.firstRound(only);
    return known ?? (this.accounts.areMeasured(objects.keys()) ? undefined : FIRST_ROUND);
  }

  /**
   * A workspace that has a batch of its own has it until its time is over: rounds of many objects on the same users load each
   * of them once.
   */
  #sharesOf({ shares }: Batch, only: string | undefined): ReadonlyMap<string, number> {
    const most = only === undefined ? 0 : this.accounts.mostObjects(only);
    if (only === undefined) return shares;
    return most < Number.POSITIVE_INFINITY ? new Map([[only, most]]) : NO_SHARES;
  }

  #charge(
    { batch, bytes }: Chosen,
    { used: { objects, loaded, isCut, nextRound } }: BatchResult & { kind: 'applied' },
    milliseconds: number,
  ): void {
    const units = new Map<string, number>();
    for (const [workspaceId, wanted] of batch.objects) {
      const count = objects.get(workspaceId) ?? 0;
      const text = wanted > 0 ? ((bytes.get(workspaceId) ?? 0) * count) / wanted : 0;
      units.set(workspaceId, count + (text + (loaded.get(workspaceId) ?? 0)) / BYTES_PER_UNIT);
    }
    this.accounts.charge({ units, objects, milliseconds, isCut });
    const [only, ...others] = batch.objects.keys();
    if (others.length === 0) this.accounts.noteRound(only!, isCut ? nextRound : undefined);
  }

  /** Applies a part of one envelope by itself. */
  async #applyAlone({ batch, deliveries, isShared }: Chosen): Promise<Step> {
    const [delivery] = deliveries;
    const started = performance.now();
    const settled = await this.#apart.settle(delivery!, { milliseconds: isShared ? SLICE_MS : PART_MS });
    for (const workspaceId of batch.objects.keys()) {
      this.accounts.chargeTime(workspaceId, (performance.now() - started) / batch.objects.size);
      if (settled === 'failed') this.accounts.letRest(workspaceId);
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

  /** Decides how what has failed is tried again. */
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
    // Those who do not need the statement go on.
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
    // The store applies the objects of others meanwhile.
    if (times > 0 && others.length > 0) return this.#split(chosen, UNKNOWN);
    if (times > 0) {
      this.accounts.letRest(only!);
      return NOTHING_YET;
    }
    return { kind: 'waits', milliseconds: failing.nextWait() };
  }

  /** Notes a failure by the limits for shared lanes, which is nobody's fault. @returns whether it was one */
  #noteTimeout({ batch }: Chosen, error: unknown): boolean {
    const state = sqlstateOf(error);
    if (state !== STATEMENT_TIMEOUT && state !== LOCK_TIMEOUT) return false;
    const [only, ...others] = batch.objects.keys();
    if (others.length > 0) this.accounts.part(batch.objects.keys());
    else if (state === LOCK_TIMEOUT) this.accounts.letRest(only!);
    else if (batch.objects.get(only!)! > 1) this.accounts.shrink(only!, batch.objects.get(only!)!);
    else this.#slow.add(only!);
    return true;
  }

  /** Tries a batch of several workspaces by workspace, and one of one workspace by envelope. */
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

/** Names what failures are counted for: one workspace in a lane, or any batch of several in it. */
function keyOf(lane: number, { objects }: Batch): string {
  const [only] = objects.keys();
  return objects.size === 1 ? `${lane} ${only}` : `${lane}`;
}

/** An envelope whose data is known. */
export function waiting(delivery: Delivery, bytes = 0): WaitingDelivery & { delivery: Delivery } {
  return { id: delivery.id, tag: undefined, parts: partsOf(delivery.envelope, bytes), delivery };
}

/** What a step has left of envelopes. */
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
