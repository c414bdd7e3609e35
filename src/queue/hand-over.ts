import type { AcceptedObject, AcceptedRequest } from '../jobs/envelope.ts';
import { backOff, rest } from '../platform/poll.ts';
import { linkSignals } from '../platform/time-limit.ts';
import type { StagedEnvelopes } from '../store/staged-envelopes.ts';
import type { WatchApplied } from './effects.ts';
import { inPresentLanes } from './installation.ts';
import { type LaneEntry, type LaneProducer, QueueUnavailable } from './lanes.ts';
import { pack } from './pack.ts';
import { traceFlush } from './spans.ts';

/** The lanes to which staged envelopes are added. */
export interface TargetLanes {
  /** Present number of lanes in each shard. When the envelopes were staged, there may have been more. */
  lanes: number;
  /** @throws {QueueUnavailable} if the envelopes may not be in the lanes */
  add(entries: LaneEntry[]): Promise<unknown>;
}

/** Returns the lanes of a producer. Each add has a span. */
export const lanesOf = (producer: LaneProducer, lanes: number): TargetLanes => ({
  lanes,
  add: (entries) => traceFlush(entries, () => producer.add(entries)),
});

interface Retries {
  /** Milliseconds for which an unavailable queue is retried; 0: the first error is thrown. */
  patience?: number;
  /** Ends the retries after one more attempt. */
  leaving?: AbortSignal;
  /** Called before the pause after each refusal of the queue. */
  onRetry?(refusal: QueueUnavailable): void;
}

const PATIENCE_MS = 60_000;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2000;

/** Milliseconds after which envelopes that have not taken effect are added again, in case the queue has lost them. */
const ADD_AGAIN_MS = 15_000;

/**
 * Adds staged envelopes to the lanes. The envelopes keep their ids, by which lanes and ledger recognize them, so a
 * repetition after a crash has no second effect.
 *
 * @returns the time by `performance.now()` at which the successful attempt began
 * @throws {QueueUnavailable} if the envelopes may not be in the lanes; they stay staged
 */
export async function handOver(
  entries: unknown[],
  { lanes, add }: TargetLanes,
  { patience = PATIENCE_MS, leaving, onRetry }: Retries = {},
): Promise<number> {
  const present = inPresentLanes(entries as LaneEntry[], lanes);
  const end = performance.now() + patience;
  for (const nextPause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS); ; ) {
    const begunAt = performance.now();
    try {
      if (present.length > 0) await add(present);
      return begunAt;
    } catch (error) {
      if (!(error instanceof QueueUnavailable) || performance.now() >= end || leaving?.aborted) throw error;
      onRetry?.(error);
      await rest(nextPause(), leaving);
    }
  }
}

interface Waiting extends Retries {
  applied: WatchApplied;
  /** Ends the wait with its reason. */
  abandon: AbortSignal;
}

/**
 * Adds staged envelopes to the lanes and waits until the ledger contains all of them.
 *
 * @returns milliseconds from the first successful add until the effect
 * @throws {QueueUnavailable} as `handOver`; the error of the store; the reason of `abandon`
 */
export async function handOverUntilApplied(
  { entries, envelopeIds }: StagedEnvelopes,
  target: TargetLanes,
  { applied, abandon, ...retries }: Waiting,
): Promise<number> {
  let addedAt: number | undefined;
  const trouble = new AbortController();
  const { signal: leaving, release } = linkSignals({ signals: [abandon, trouble.signal] });
  const onTrouble = (error: unknown) => trouble.abort(error);
  try {
    for (let missing: Set<string> = new Set(envelopeIds); missing.size > 0; ) {
      const begunAt = await handOver(entries, target, retries);
      addedAt ??= begunAt;
      ({ missing } = await applied(missing, { patience: ADD_AGAIN_MS, leaving, onTrouble }));
      leaving.throwIfAborted();
    }
  } finally {
    release();
  }
  return addedAt === undefined ? 0 : performance.now() - addedAt;
}

/** Another process has changed the outbox, or its owner was removed. This process must stop working on the owner. */
export class TakenOver extends Error {
  override name = 'TakenOver';
  constructor() {
    super('another process has taken over, or the owner of the outbox was removed');
  }
}

/** A change of an outbox, made in one transaction. */
export interface OutboxStep<Chunk, Done> {
  /** Result of the stored chunk. Absent if the outbox is empty. */
  done?: Done | undefined;
  /** The chunk that replaces the stored chunk. Absent if the outbox becomes empty. */
  next?: Chunk | undefined;
}

interface OutboxSettings<Chunk, Done> {
  /**
   * Records `done` and replaces the stored chunk by `next`, in one transaction that succeeds only if no other
   * process has changed the outbox.
   * @returns whether the outbox now holds `next`
   * @throws {TakenOver}
   */
  store(step: OutboxStep<Chunk, Done>): Promise<boolean>;
  /** Hands a stored chunk over with `handOver` or `handOverUntilApplied`. */
  handOver(chunk: Chunk): Promise<Done>;
}

/**
 * The outbox of one owner, which holds at most one chunk of envelopes. A chunk is stored before the lanes get it, and
 * replaced after they have it. A process that finds a chunk of an earlier process hands it over again.
 */
export class Outbox<Chunk, Done> {
  readonly #settings: OutboxSettings<Chunk, Done>;
  #current: Promise<Done> | undefined;

  constructor(settings: OutboxSettings<Chunk, Done>) {
    this.#settings = settings;
  }

  /** Begins to hand over a chunk that an earlier process has stored, possibly for a second time. */
  resume(chunk: Chunk): void {
    this.#current = this.#settings.handOver(chunk);
    // `handedOver` and `advance` report the error.
    this.#current.catch(() => {});
  }

  /** Resolves to the result of the stored chunk when it was handed over; undefined if the outbox is empty. */
  async handedOver(): Promise<Done | undefined> {
    return this.#current;
  }

  /**
   * Waits until the stored chunk was handed over, replaces it by `next`, and begins to hand `next` over.
   *
   * @returns whether the outbox now holds `next`
   * @throws {TakenOver} without a change; the error of the hand-over, with which the chunk stays stored
   */
  async advance(next?: Chunk): Promise<boolean> {
    const done = await this.#current;
    const isStored = await this.#settings.store({ done, next });
    this.#current = undefined;
    if (next !== undefined && isStored) this.resume(next);
    return isStored;
  }
}

/** How requests are packed into envelopes. */
export interface Packing {
  lanes: number;
  maxEnvelopeObjects: number;
}

/** Packs the objects of a request into envelopes with ids, which stay the same from then on. */
export function packStaged(
  { objects, ...request }: { request: AcceptedRequest; objects: AcceptedObject[]; bytes: number },
  { lanes, maxEnvelopeObjects }: Packing,
): StagedEnvelopes & { entries: LaneEntry[] } {
  if (objects.length === 0) return { entries: [], envelopeIds: [] };
  const entries = pack([{ ...request, objects }], lanes, maxEnvelopeObjects);
  // The ledger identifies a fence by the envelope of its first lane only.
  return { entries, envelopeIds: [...new Set(entries.map(({ id, envelope }) => envelope.fence?.id ?? id))] };
}
