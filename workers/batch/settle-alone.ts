import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { type Attempts, type ChooseOne, NO_POISON } from './attempts.ts';
import { BisectionStopped, type BisectionTerms, bisect, cutEvenly } from './bisect.ts';
import {
  countsAgainstObject,
  createFailures,
  type Failed,
  type Fault,
  isWell,
  reasonOf,
  TRIES,
  triesOf,
} from './failures.ts';
import type { Delivery } from './open.ts';
import type { BatchResult, Part } from './parts.ts';
import { reportRetry } from './report.ts';
import { type Apply, transact } from './run-batch.ts';
import type { WorkItem } from './work-item.ts';

/** Number of parts into which objects are split that break the connection when they are applied together. */
const PARTS = 16;

/** Maximum retries of an envelope that fails as a whole although each of its objects can be applied. */
const MOST_VAIN = 3;

const TOGETHER = 'the envelope cannot take effect, though each of its objects can: the log has the error';

/**
 * Milliseconds after which a transaction that has found a slow poison object is rolled back and restarted without that
 * object. The transaction holds locks, and finding each such object takes seconds.
 */
const LONGEST_BISECTION_MS = 20_000;

/** A part that ends with its first object. */
const ONE: Part = { milliseconds: 0 };

class BeginAgain extends Error {
  override name = 'BeginAgain';
}

export interface SettlingContext {
  pool: Pool;
  attempts: Attempts;
  metrics: WorkerMetrics;
  log: Log;
  report(deliveries: Delivery[], result: BatchResult, milliseconds: number): void;
}

/** Earlier failures of envelopes; `whole` is set if one envelope failed alone and would fail again as a whole. */
export interface Before {
  failed: Failed;
  whole: boolean;
}

/** Applies envelopes one by one after they failed in a batch. */
export class Apart {
  readonly #context: SettlingContext;
  /** Earlier failures of the envelopes to apply one by one, by envelope id. */
  readonly #before = new Map<string, Before>();
  readonly #bisections = new Map<string, Bisection>();

  constructor(context: SettlingContext) {
    this.#context = context;
  }

  /** Registers envelopes to be applied one by one. */
  add(ids: readonly string[], before: Before): void {
    for (const id of ids) this.#before.set(id, before);
  }

  /** Returns whether an envelope has to be applied alone. */
  has(id: string): boolean {
    return this.#before.has(id) || this.#context.attempts.isSuspect(id);
  }

  get isEmpty(): boolean {
    return this.#before.size === 0 && !this.#context.attempts.hasSuspects;
  }

  /** Applies a part of an envelope. */
  async settle(delivery: Delivery, part: Part): Promise<Settled> {
    const { id } = delivery;
    const before = this.#before.get(id) ?? { failed: { times: 0, signature: undefined }, whole: false };
    this.#before.set(id, before);
    const bisection = this.#bisections.get(id) ?? bisectionOf(delivery, before, this.#context);
    this.#bisections.set(id, bisection);
    const settled = await bisection(delivery, part);
    if (settled !== 'failed' && !(settled.kind === 'applied' && settled.left)) this.#forget(id);
    return settled;
  }

  #forget(id: string): void {
    this.#before.delete(id);
    this.#bisections.delete(id);
    this.#context.attempts.end([id]);
  }
}

/** Result of a part of an envelope; `failed` if no object took effect and the part has to be retried a little later. */
export type Settled = BatchResult | 'failed';

/** Applies a part of an envelope; poison objects become dead letters. */
type Bisection = (delivery: Delivery, part: Part) => Promise<Settled>;

/** Creates the bisection of one envelope that has failed, together with others or alone. */
function bisectionOf(
  { id: envelope, envelope: given }: Delivery,
  before: Before,
  { pool, attempts, metrics, log, report }: SettlingContext,
): Bisection {
  const isSuspect = attempts.isSuspect(envelope);
  const poison = new Map<string, string>();
  let starts: ReadonlySet<string> = new Set();
  const objects: { id: string }[] = Array.isArray(given?.objects) ? given.objects : [];
  const failures = createFailures(pool, before.failed);
  let vain = 0;
  if (before.whole && before.failed.times > 0) cut(objects);

  return async function next(delivery, part) {
    const until = performance.now() + part.milliseconds;
    for (;;) {
      const settled = await commitOne(delivery, part);
      const isLeft = settled !== 'failed' && settled.kind === 'applied' && settled.left;
      if (!isLeft || !isSuspect || performance.now() > until) return settled;
    }
  };

  /** Commits a part of the envelope, or one object of a suspect. */
  async function commitOne(delivery: Delivery, part: Part): Promise<Settled> {
    const started = performance.now();
    const suspicion = {
      ...{ poison: new Map(poison), starts, failed: failures.sofar() },
      found: (item: WorkItem, reason: string, fault: Fault) => note(item, { reason, fault, started }),
    };
    const ended = isSuspect
      ? await attempts.alone((chooseOne) =>
          applyBisecting(pool, [delivery], { suspicion, part: { ...part, ...ONE }, chooseOne }),
        )
      : await applyBisecting(pool, [delivery], { suspicion, part });
    starts = ended.starts;
    if (ended.how === 'committed') {
      const { result } = ended;
      report([delivery], result, performance.now() - started);
      noteSetAside(ended);
      return result;
    }
    const { error, hand } = ended;
    if (error instanceof BeginAgain) return 'failed';
    metrics.retries.inc();
    reportRetry(log, { error, envelopes: [envelope] });
    const times = await failures.count(error);
    if (times >= triesOf(error)) noteOrCut(hand, error);
    return 'failed';
  }

  function noteSetAside({ setAside }: { setAside: ReadonlySet<string> }): void {
    for (const id of setAside) {
      metrics.setAside.inc();
      log.error(
        { object_id: id, envelopes: [envelope] },
        'an object ended its process repeatedly; set aside',
      );
    }
  }

  /** @throws {BeginAgain} */
  async function note(
    { object: { id } }: WorkItem,
    { reason, fault, started }: { reason: string; fault: Fault; started: number },
  ): Promise<void> {
    if (fault === 'refused') return;
    if (!(await isWell(pool))) throw new BeginAgain();
    log.error(
      { object_id: id, envelopes: [envelope], reason },
      'object cannot be applied; moved to dead letters',
    );
    poison.set(id, reason);
    if (performance.now() - started > LONGEST_BISECTION_MS) throw new BeginAgain();
  }

  /** Handles a repeated error that breaks the connection or may be chance: one transaction cannot bisect it. */
  function noteOrCut(hand: WorkItem[], error: unknown): void {
    if (hand.length > 1) {
      cut(hand.map(({ object }) => object));
      failures.goOnFrom(triesOf(error) - (triesOf(error) === TRIES ? 1 : TRIES));
      return;
    }
    failures.goOnFrom(0);
    if (!countsAgainstObject(error)) return;
    const [only] = hand;
    if (only) poison.set(only.object.id, reasonOf(error));
    // The failure occurs at COMMIT, or before any object is applied, so that no single object is to blame.
    else if (++vain > MOST_VAIN) for (const { id } of objects) poison.set(id, TOGETHER);
  }

  /** Splits these objects: they are no longer applied together or with the objects after them. */
  function cut(together: { id: string }[]): void {
    if (together.length > 0) starts = new Set([...starts, ...startsOf(together, objects)]);
  }
}

/** Returns the ids of the objects at which the parts begin, and of the object after the last part. */
function startsOf(together: { id: string }[], all: { id: string }[]): string[] {
  const parts = cutEvenly(together, Math.min(PARTS, together.length));
  const last = together.at(-1);
  const next = all[all.findIndex((object) => object?.id === last?.id) + 1];
  return [...parts.map(([first]) => first), next].flatMap((object) => (object ? [object.id] : []));
}

/** Knowledge about failing objects from earlier transactions. */
export type Suspicion = Omit<BisectionTerms, 'now' | 'until'>;

/**
 * Result of one transaction of a bisection. `starts` are the ids at which its parts begin; `setAside` holds the ids of
 * objects that were set aside because they ended their processes.
 */
type EndedBisection = { starts: ReadonlySet<string> } & (
  | { how: 'committed'; result: BatchResult; setAside: ReadonlySet<string> }
  /** `hand`: objects of the last attempt; empty if the failure came after all objects, so that no object caused it. */
  | { how: 'failed'; error: unknown; hand: WorkItem[] }
);

/**
 * Applies a batch like `applyTogether`, but by bisection: an object that causes an error becomes a dead letter, and the
 * others take effect. The result is `failed` for an error that no object causes or that may be chance.
 *
 * @param given.chooseOne chooses the only object to apply; all objects are applied by default
 */
export async function applyBisecting(
  pool: Pool,
  deliveries: Delivery[],
  { suspicion, part, chooseOne }: { suspicion: Suspicion; part: Part; chooseOne?: ChooseOne },
): Promise<EndedBisection> {
  let { starts } = suspicion;
  let hand: WorkItem[] = [];
  const setAside = new Set<string>();
  const apply: Apply = async (tx, all, { now, until, streamed }) => {
    const { items, poison } = chooseOne ? await chooseOne(all) : { items: all, poison: NO_POISON };
    for (const id of poison.keys()) setAside.add(id);
    try {
      const terms = {
        ...{ ...suspicion, poison: new Map([...suspicion.poison, ...poison]) },
        ...{ starts, now, until, ...(streamed && { streamed }) },
      };
      const bisected = await bisect(tx, items, terms);
      starts = bisected.starts;
      return bisected.applied;
    } catch (error) {
      if (!(error instanceof BisectionStopped)) throw error;
      ({ hand, starts } = error);
      throw error.cause;
    }
  };
  try {
    return { how: 'committed', result: await transact(pool, deliveries, { apply, part }), starts, setAside };
  } catch (error) {
    return { how: 'failed', error, hand, starts };
  }
}
