import type { Log } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import type { Pool } from '../../src/store/database.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { type Attempts, type ChooseOne, NO_POISON } from './attempts.ts';
import { BisectionStopped, type BisectionTerms, bisect, cutEvenly } from './bisect.ts';
import {
  countsAgainstObject,
  createFailures,
  type Failed,
  type Fault,
  FIRST_RETRY_MS,
  isWell,
  LONGEST_RETRY_MS,
  reasonOf,
  TRIES,
  triesOf,
} from './failures.ts';
import { type HandedIn, LaneTurns } from './handed-in.ts';
import type { Delivery } from './open.ts';
import { type BatchResult, PART_MS, type Part } from './parts.ts';
import { reportRetry } from './report.ts';
import { type Apply, transact } from './run.ts';
import type { WorkItem } from './work-item.ts';

/** Parts into which objects are cut that break the connection together. */
const PARTS = 16;

/** Tries of an envelope that fails as a whole, though each of its objects takes effect. */
const MOST_VAIN = 3;

const TOGETHER = 'the envelope cannot take effect, though each of its objects can: the log has the error';

/**
 * Milliseconds after which a transaction that has found a slow poison object is taken back and begun again without it.
 * It holds locks meanwhile, and each such object takes seconds to find.
 */
const LONGEST_BISECTION_MS = 20_000;

/** A part that ends with its first object. */
const ONE: Part = { milliseconds: 0, late: new Set(), isForOthers: false };

const PART: Part = { milliseconds: PART_MS, late: new Set(), isForOthers: false };

class BeginAgain extends Error {
  override name = 'BeginAgain';
}

export interface SettlingContext {
  pool: Pool;
  attempts: Attempts;
  metrics: WorkerMetrics;
  log: Log;
  /** Aborted when what is not applied is to be left to another worker. */
  signal: AbortSignal;
  report(deliveries: Delivery[], result: BatchResult, milliseconds: number): void;
}

/** How envelopes have failed by then; `whole`: one alone, so that all of it fails together once more. */
interface Before {
  failed: Failed;
  whole: boolean;
}

/** Lets envelopes take effect each for itself, part by part, that have failed together. */
export function createApart(context: SettlingContext) {
  /** By ids of envelopes of which something is left. */
  const bisections = new Map<string, Bisection>();

  async function settle(delivery: Delivery, before: Before): Promise<'done' | 'left' | 'abandoned'> {
    const bisection = bisections.get(delivery.id) ?? bisectionOf(delivery, before, context);
    const ended = await bisection();
    if (ended === 'left') bisections.set(delivery.id, bisection);
    else bisections.delete(delivery.id);
    if (ended === 'done') context.attempts.end([delivery.id]);
    return ended;
  }

  return {
    knows: (id: string) => bisections.has(id) || context.attempts.isSuspect(id),

    /**
     * A part of each envelope, one after the other. Behind one of which something is left come those of other workspaces.
     *
     * @returns those of which something is left
     */
    async settleLane(pieces: HandedIn[], before: Before): Promise<HandedIn[] | 'abandoned'> {
      const left: HandedIn[] = [];
      const waiting = new LaneTurns();
      for (const piece of pieces) {
        const ended = waiting.meet(piece) ? 'left' : await settle(piece.deliveries[0]!, before);
        if (ended === 'abandoned') return ended;
        if (ended === 'done') piece.done();
        else {
          left.push(piece);
          waiting.add(piece);
        }
      }
      return left;
    },
  };
}

/**
 * Lets a part of an envelope take effect; poison objects become dead letters. `left`: there is more of it, and others
 * may have their turn.
 */
type Bisection = () => Promise<'done' | 'left' | 'abandoned'>;

/** The bisection of one envelope that has failed, with others or alone. */
function bisectionOf(
  delivery: Delivery,
  before: Before,
  { pool, attempts, metrics, log, signal, report }: SettlingContext,
): Bisection {
  const isSuspect = attempts.isSuspect(delivery.id);
  const poison = new Map<string, string>();
  let starts: ReadonlySet<string> = new Set();
  const objects: { id: string }[] = Array.isArray(delivery.envelope?.objects)
    ? delivery.envelope.objects
    : [];
  const failures = createFailures(pool, before.failed);
  let vain = 0;
  if (before.whole && before.failed.times > 0) cut(objects);

  return async function next() {
    const until = performance.now() + PART_MS;
    for (;;) {
      const ended = await commitOne();
      if (ended !== 'left' || !isSuspect || performance.now() > until) return ended;
    }
  };

  /** Commits a part of the envelope, or one object of a suspect. */
  async function commitOne(): ReturnType<Bisection> {
    for (const nextWait = backOff(FIRST_RETRY_MS, LONGEST_RETRY_MS); !signal.aborted; ) {
      const wait = nextWait();
      const started = performance.now();
      const suspicion = {
        ...{ poison: new Map(poison), starts, failed: failures.sofar() },
        found: (item: WorkItem, reason: string, fault: Fault) => note(item, { reason, fault, started }),
      };
      const ended = isSuspect
        ? await attempts.alone((chooseOne) =>
            applyBisecting(pool, [delivery], { suspicion, part: ONE, chooseOne }),
          )
        : await applyBisecting(pool, [delivery], { suspicion, part: PART });
      starts = ended.starts;
      if (ended.how === 'committed') {
        const { result } = ended;
        report([delivery], result, performance.now() - started);
        noteSetAside(ended);
        return result.kind === 'applied' && result.left ? 'left' : 'done';
      }
      const { error, hand } = ended;
      if (error instanceof BeginAgain) {
        await rest(FIRST_RETRY_MS, signal);
        continue;
      }
      metrics.retries.inc();
      reportRetry(log, { error, envelopes: [delivery.id], wait });
      const times = await failures.count(error);
      if (times >= triesOf(error)) noteOrCut(hand, error);
      await rest(wait, signal);
    }
    return 'abandoned';
  }

  function noteSetAside({ setAside }: { setAside: ReadonlySet<string> }): void {
    for (const id of setAside) {
      metrics.setAside.inc();
      log.error(
        { object_id: id, envelopes: [delivery.id] },
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
      { object_id: id, envelopes: [delivery.id], reason },
      'object cannot be applied; moved to dead letters',
    );
    poison.set(id, reason);
    if (performance.now() - started > LONGEST_BISECTION_MS) throw new BeginAgain();
  }

  /** What breaks the connection, or fails by what may be chance, cannot be tried apart in one transaction. */
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
    // It fails when it is committed, or before anything is applied: no object of it alone.
    else if (++vain > MOST_VAIN) for (const { id } of objects) poison.set(id, TOGETHER);
  }

  /** From now on these are not tried together, nor with what follows them. */
  function cut(together: { id: string }[]): void {
    if (together.length > 0) starts = new Set([...starts, ...startsOf(together, objects)]);
  }
}

/** Where parts begin that are not tried together, and what follows them, among all objects of their envelope. */
function startsOf(together: { id: string }[], all: { id: string }[]): string[] {
  const parts = cutEvenly(together, Math.min(PARTS, together.length));
  const last = together.at(-1);
  const next = all[all.findIndex((object) => object?.id === last?.id) + 1];
  return [...parts.map(([first]) => first), next].flatMap((object) => (object ? [object.id] : []));
}

/** What is known of objects that fail. */
export type Suspicion = Omit<BisectionTerms, 'now' | 'until'>;

/**
 * How a transaction of a bisection ended; `starts` are what it knows by then, `setAside` holds the ids of objects that
 * ended their processes.
 */
type EndedBisection = { starts: ReadonlySet<string> } & (
  | { how: 'committed'; result: BatchResult; setAside: ReadonlySet<string> }
  /** `hand`: what was tried together at last; nothing, where it failed behind all of them: that is no object's doing. */
  | { how: 'failed'; error: unknown; hand: WorkItem[] }
);

/**
 * The same by bisection: what one of the objects is to blame for ends as its dead letter, and the others take effect.
 * It fails by what is nobody's fault, or chance.
 *
 * @param given.chooseOne chooses the only object that is applied; absent: all are
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
