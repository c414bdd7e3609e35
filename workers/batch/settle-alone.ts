import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { createFailures, type Failed, isWell } from './failure-count.ts';
import { type Fault, type Outcome, reasonOf, TRIES, triesOf } from './failures.ts';
import { cutEvenly } from './isolate.ts';
import type { Delivery } from './open.ts';
import { type Held, PART_MS, type Part, turnsOf } from './parts.ts';
import { runIsolating } from './run.ts';
import type { Work } from './work.ts';

const FIRST_RETRY_MS = 20;
const LONGEST_RETRY_MS = 1000;

/** Parts into which objects are cut that break the connection together. */
const PARTS = 16;

/** Tries of an envelope that fails as a whole, though each of its objects takes effect. */
const MOST_VAIN = 3;

const TOGETHER = 'the envelope cannot take effect, though each of its objects can: the log has the error';

/**
 * Milliseconds after which a transaction that has found an object which takes too long is taken back, and begun again
 * without it: it holds locks meanwhile, and each such object takes seconds to find.
 */
const LONGEST_SEARCH_MS = 20_000;

const PART: Part = { milliseconds: PART_MS, late: new Set(), isForOthers: false };

class BeginAgain extends Error {
  override name = 'BeginAgain';
}

export interface SettlingContext {
  pool: Pool;
  metrics: WorkerMetrics;
  log: Log;
  /** Aborted when what is not applied is to be left to another worker. */
  signal: AbortSignal;
  report(deliveries: Delivery[], outcome: Outcome, milliseconds: number): void;
}

/** How envelopes have failed by then; `whole`: one alone, so that all of it fails together once more. */
interface Before {
  failed: Failed;
  whole: boolean;
}

/** Lets envelopes take effect each for itself, part by part, that have failed together. */
export function createApart(context: SettlingContext) {
  /** By ids of envelopes of which something is left. */
  const searches = new Map<string, Search>();

  async function settle(delivery: Delivery, before: Before): Promise<'done' | 'left' | 'abandoned'> {
    const search = searches.get(delivery.id) ?? searchIn(delivery, before, context);
    const ended = await search();
    if (ended === 'left') searches.set(delivery.id, search);
    else searches.delete(delivery.id);
    return ended;
  }

  return {
    knows: (id: string) => searches.has(id),

    /**
     * A part of each envelope, one after the other. Behind one of which something is left come those of other workspaces.
     *
     * @returns those of which something is left
     */
    async settleLane(pieces: Held[], before: Before): Promise<Held[] | 'abandoned'> {
      const left: Held[] = [];
      const waiting = new Set<string>();
      for (const piece of pieces) {
        const delivery = piece.deliveries[0]!;
        const turns = turnsOf(delivery);
        const isBehind = turns.some((turn) => waiting.has(turn));
        const ended = isBehind ? 'left' : await settle(delivery, before);
        if (ended === 'abandoned') return ended;
        if (ended === 'done') piece.done();
        else {
          left.push(piece);
          for (const turn of turns) waiting.add(turn);
        }
      }
      return left;
    },
  };
}

/**
 * Lets a part of an envelope take effect; what of it is to blame becomes a dead letter. `left`: there is more of it, and
 * others may have their turn.
 */
type Search = () => Promise<'done' | 'left' | 'abandoned'>;

/** The search for what is to blame in one envelope that has failed, with others or alone. */
function searchIn(
  delivery: Delivery,
  before: Before,
  { pool, metrics, log, signal, report }: SettlingContext,
): Search {
  const condemned = new Map<string, string>();
  const starts = new Set<string>();
  const objects: { id: string }[] = Array.isArray(delivery.envelope?.objects)
    ? delivery.envelope.objects
    : [];
  const failures = createFailures(pool, before.failed);
  let vain = 0;
  if (before.whole && before.failed.times > 0) cut(objects);

  return async function next() {
    for (let wait = FIRST_RETRY_MS; !signal.aborted; wait = Math.min(wait * 2, LONGEST_RETRY_MS)) {
      const started = performance.now();
      let hand: Work[] = [];
      try {
        const suspicion = {
          ...{ condemned: new Map(condemned), starts, failed: failures.sofar() },
          inHand(works: Work[]) {
            hand = works;
          },
          found: (work: Work, reason: string, fault: Fault) => note(work, { reason, fault, started }),
        };
        const outcome = await runIsolating(pool, [delivery], { suspicion, part: PART });
        report([delivery], outcome, performance.now() - started);
        return outcome.kind === 'applied' && outcome.left ? 'left' : 'done';
      } catch (error) {
        if (error instanceof BeginAgain) {
          await sleep(FIRST_RETRY_MS, undefined, { signal }).catch(() => {});
          continue;
        }
        metrics.retries.inc();
        log.warn({ err: error, envelopes: [delivery.id], retry_in_ms: wait }, 'not applied yet');
        const times = await failures.count(error);
        if (times >= triesOf(error)) condemnOrCut(hand, error);
        await sleep(wait, undefined, { signal }).catch(() => {});
      }
    }
    return 'abandoned';
  };

  /** @throws {BeginAgain} */
  async function note(
    { object: { id } }: Work,
    { reason, fault, started }: { reason: string; fault: Fault; started: number },
  ): Promise<void> {
    if (fault === 'refused') return;
    if (!(await isWell(pool))) throw new BeginAgain();
    log.error({ object_id: id, envelopes: [delivery.id], reason }, 'an object fails the same way each time');
    condemned.set(id, reason);
    if (performance.now() - started > LONGEST_SEARCH_MS) throw new BeginAgain();
  }

  /** What breaks the connection, or fails by what may be chance, cannot be tried apart in one transaction. */
  function condemnOrCut(hand: Work[], error: unknown): void {
    if (hand.length > 1) {
      cut(hand.map(({ object }) => object));
      failures.goOnFrom(triesOf(error) - (triesOf(error) === TRIES ? 1 : TRIES));
      return;
    }
    failures.goOnFrom(0);
    const [only] = hand;
    if (only) condemned.set(only.object.id, reasonOf(error));
    // It fails when it is committed, or before anything is applied: no object of it alone.
    else if (++vain > MOST_VAIN) for (const { id } of objects) condemned.set(id, TOGETHER);
  }

  /** From now on these are not tried together, nor with what follows them. */
  function cut(together: { id: string }[]): void {
    if (together.length === 0) return;
    for (const [first] of cutEvenly(together, Math.min(PARTS, together.length)))
      if (first) starts.add(first.id);
    const last = together.at(-1);
    const next = objects[objects.findIndex((object) => object?.id === last?.id) + 1];
    if (next) starts.add(next.id);
  }
}
