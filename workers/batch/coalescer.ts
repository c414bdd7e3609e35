import type { Log } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import type { Pool } from '../../src/store/database.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { Attempts } from './attempts.ts';
import {
  blameOf,
  createFailures,
  type Failed,
  FIRST_RETRY_MS,
  isOurStatement,
  LONGEST_RETRY_MS,
  triesOf,
} from './failures.ts';
import { createBeside, createFollowers, createLate, createWay, whoMayOvertake } from './fairness.ts';
import {
  byLane,
  countObjects,
  type HandedIn,
  inPieces,
  LARGE,
  lanesOf,
  objectsOf,
  remainingOf,
  takePieces,
  tellDone,
} from './handed-in.ts';
import type { Delivery } from './open.ts';
import type { BatchResult, Left } from './parts.ts';
import { reportBatch, reportRetry } from './report.ts';
import { applyTogether, HOLDS_ONE } from './run.ts';
import { createApart } from './settle-alone.ts';

/**
 * Of those that are not in trouble, at once; a third one finds both cores busy, or the disk. Beside them are those that are
 * tried again, and two small ones of those who overtake: one in its lane (`besideLanes`), one of whoever is held
 * (`besideOthers`).
 */
const MAX_TRANSACTIONS = 2;

/** Milliseconds from which on a transaction was slow: the next one is given half as much. Up to the other, twice as much. */
const SLOW_MS = 1000;
const QUICK_MS = 250;

/** Objects from which on nothing is cut: no lane hands out more. */
const ALL = 16_384;

const NOTHING: Left = { envelopes: new Set(), workspaces: new Set(), over: new Set(), size: 0 };

const UNKNOWN: Failed = { times: 0, signature: undefined };

interface CoalescerOptions {
  metrics: WorkerMetrics;
  log: Log;
  /** A UUID of this life of the process; absent: a new one. */
  processId?: string;
  /** Told the ids of dead letters that were written. */
  onDeadLetters?(ids: string[]): void;
  /** Told that something is left to do beside the lanes. */
  onTombstones?(): void;
}

/**
 * The coalescer: collects the envelopes that this process holds, some of each lane, and applies all of them in one
 * transaction. There is no timer: what arrives during a transaction waits for the next. It has one of its own when it is
 * large enough, when the transaction under way is in trouble, or when that is large and of other workspaces: whoever
 * floods keeps no other lane waiting. A batch that takes long is cut into parts (workers/batch/parts.ts): what is left of
 * it is in the next transaction, with what has come meanwhile.
 *
 * A transient error is retried here, with the envelopes in hand: giving a job back would put it behind later ones. When
 * the objects may be to blame the batch is taken apart. Each lane goes on for itself, beside the others, and each envelope
 * in it by bisection, until the object is found.
 */
export function createCoalescer(pool: Pool, options: CoalescerOptions) {
  const { metrics, log, processId, onDeadLetters, onTombstones } = options;
  let held: HandedIn[] = [];
  /** Lanes of which a part is in a transaction: what is held of them comes behind that part. */
  const lanesInWork = new Set<number>();
  let transactions = 0;
  /** Of the transactions, those that have failed and are tried again. */
  let troubled = 0;
  /** Objects that a transaction may hold, but for those of its first envelope. */
  let most = ALL;
  const turns = createLate();
  const followers = createFollowers();
  /** Envelopes of each transaction that is not beside another one. */
  const inWork = new Set<Delivery[]>();
  // One connection stays for everything else that this process asks the store.
  const connections = Math.max(1, pool.options.max - 1);
  const abandon = new AbortController();
  const attempts = new Attempts({ pool, processId, log });
  const apart = createApart({ pool, attempts, metrics, log, signal: abandon.signal, report });
  const way = createWay();
  const [besideLanes, besideOthers] = [openBeside(), openBeside()];

  /** Resolves when the envelopes have taken effect; never rejects. After `abandon` it may stay open. */
  function apply(...deliveries: Delivery[]): Promise<void> {
    return new Promise((done) => {
      held.push({ deliveries, done });
      beginMore();
    });
  }

  function beginMore(): void {
    const sound = transactions - troubled;
    if (transactions >= connections) return;
    const free = held.filter(isFree);
    const isWorthIt = sound <= 0 || (sound < MAX_TRANSACTIONS && objectsOf(free) >= LARGE);
    if (free.length > 0 && isWorthIt) void applyHeld();
    else if (free.length > 0) void overtake(free);
  }

  /** Those who have little have a transaction of their own beside a large one of others, in whatever lane that is. */
  async function overtake(free: HandedIn[]): Promise<void> {
    if (!besideOthers.isFree()) return;
    const taken = whoMayOvertake(free, { inWork, late: turns.late });
    if (taken.length === 0) return;
    held = held.filter((one) => !taken.includes(one));
    const lanes = taken.flatMap(lanesOf);
    followers.tellOvertaken(lanesInWork);
    for (const lane of lanes) lanesInWork.add(lane);
    const done = await besideOthers.apply(taken.flatMap(({ deliveries }) => deliveries));
    if (!done) held = [...taken.map((one) => ({ ...one, inPlace: true })), ...held];
    for (const lane of lanes) lanesInWork.delete(lane);
    if (done) for (const one of taken) one.done();
    beginMore();
  }

  const isFree = (one: HandedIn) => !lanesOf(one).some((lane) => lanesInWork.has(lane));

  async function applyHeld(): Promise<void> {
    transactions++;
    while (!abandon.signal.aborted) {
      const taken = take();
      if (taken.length === 0) break;
      const lanes = new Set(taken.flatMap(lanesOf));
      for (const lane of lanes) lanesInWork.add(lane);
      /** What is left of lanes waits for its turn, behind those of others. */
      const giveBack = async (left: HandedIn[], given: Iterable<number>) => {
        held = [...left, ...held];
        await followers.tellCut(left, held);
        for (const lane of given) if (lanes.delete(lane)) lanesInWork.delete(lane);
      };
      if (!(await settle(taken, giveBack))) break;
    }
    transactions--;
  }

  /** As much as a transaction may hold of what is held of free lanes, in its order, but for those whose time was over. */
  function take(): HandedIn[] {
    const free = held.filter(isFree);
    const later = held.filter((one) => !isFree(one));
    if (most >= ALL) {
      held = later;
      return free;
    }
    const { taken, left } = takePieces(free, { late: turns.late, most });
    held = [...left, ...later];
    return taken;
  }

  /**
   * Lets a part of envelopes take effect: of all of them together, or of each lane for itself.
   *
   * @param giveBack frees lanes, and keeps what is left of them
   * @returns false: abandoned
   */
  async function settle(
    batch: HandedIn[],
    giveBack: (left: HandedIn[], lanes: Iterable<number>) => Promise<void>,
  ): Promise<boolean> {
    const deliveries = batch.flatMap((one) => one.deliveries);
    await attempts.begin(deliveries);
    let before = { failed: UNKNOWN, whole: false };
    if (!deliveries.some(({ id }) => apart.knows(id))) {
      const ended = await settleTogether(deliveries);
      if (ended === 'abandoned') return false;
      if ('envelopes' in ended) {
        attempts.end(deliveries.flatMap(({ id }) => (ended.envelopes.has(id) ? [] : [id])));
        tellDone(batch, ended.envelopes);
        await giveBack(remainingOf(batch, ended.envelopes), batch.flatMap(lanesOf));
        return true;
      }
      before = { failed: ended, whole: deliveries.length === 1 };
    }
    const lanes = [...byLane(batch.flatMap(inPieces))];
    async function settleLanes(): Promise<boolean> {
      for (let next = lanes.shift(); next; next = lanes.shift()) {
        const [lane, own] = next;
        const left = await apart.settleLane(own, before);
        if (left === 'abandoned') return false;
        await giveBack(left, [lane]);
        beginMore();
      }
      return true;
    }
    // Beside each other, as far as there are connections. This one is in trouble, and so are those.
    const beside = Math.min(lanes.length, Math.max(1, connections - transactions + 1)) - 1;
    transactions += beside;
    troubled += beside + 1;
    const settled = await Promise.all(Array.from({ length: beside + 1 }, settleLanes));
    troubled -= beside + 1;
    transactions -= beside;
    return settled.every(Boolean);
  }

  /** @returns what is left, or how they failed, when something of them may be to blame */
  async function settleTogether(deliveries: Delivery[]): Promise<Left | 'abandoned' | Failed> {
    const failures = createFailures(pool);
    let isTroubled = false;
    inWork.add(deliveries);
    try {
      for (const nextWait = backOff(FIRST_RETRY_MS, LONGEST_RETRY_MS); !abandon.signal.aborted; ) {
        const wait = nextWait();
        const started = performance.now();
        try {
          const result = await applyTogether(pool, deliveries, { ...turns.nextPart(), giveWay: way.give });
          report(deliveries, result, performance.now() - started);
          turns.note(deliveries, result);
          return (result.kind === 'applied' && result.left) || NOTHING;
        } catch (error) {
          const fault = blameOf(error);
          const envelopes = deliveries.map(({ id }) => id);
          if (fault === 'refused') {
            log.warn({ err: error, envelopes }, HOLDS_ONE);
            return failures.sofar();
          }
          if (!isTroubled) troubled++;
          isTroubled = true;
          // What is slow or hopeless keeps nobody else from taking effect.
          beginMore();
          metrics.retries.inc();
          reportRetry(log, { error, envelopes, wait });
          // Each lane for itself: those that do not need the statement go on.
          if (isOurStatement(error)) return UNKNOWN;
          const times = await failures.count(error);
          if (times > 0 && (fault === 'lasting' || times >= triesOf(error))) {
            log.error(
              { err: error, envelopes },
              'batch failed repeatedly; retrying its objects individually',
            );
            most = Math.max(1, Math.min(most, countObjects(deliveries)) >> 1);
            return failures.sofar();
          }
          await rest(wait, abandon.signal);
        }
      }
      return 'abandoned';
    } finally {
      inWork.delete(deliveries);
      if (isTroubled) troubled--;
    }
  }

  function report(deliveries: Delivery[], result: BatchResult, milliseconds: number): void {
    reportBatch({ deliveries, result, milliseconds }, { metrics, log });
    if (result.kind !== 'applied') return;
    const { objects, deadLetters, leavesTombstones } = result;
    if (milliseconds > SLOW_MS) most = Math.max(1, Math.min(most, objects) >> 1);
    else if (milliseconds < QUICK_MS) most = Math.min(ALL, most * 2);
    if (deadLetters.length > 0) onDeadLetters?.(deadLetters);
    if (leavesTombstones) onTombstones?.();
  }

  function openBeside() {
    return createBeside({
      ...{ pool, attempts, log, way, report, signal: abandon.signal },
      hasConnection: () => transactions < connections,
      isSuspect: apart.knows,
    });
  }

  return {
    apply,
    /** Applies envelopes before their place in the lane. */
    beside: besideLanes,
    /** From now on the lane hears of its transactions. */
    follow: followers.follow,
    /** Stops retrying: what is not applied is delivered again to another worker. */
    abandon: () => abandon.abort(),
  };
}

export type Coalescer = ReturnType<typeof createCoalescer>;
