import { setTimeout as sleep } from 'node:timers/promises';
import { within } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import type { WorkerMetrics } from '../metrics.ts';
import { createFailures, type Failed } from './failure-count.ts';
import { blameOf, type Left, type Outcome, triesOf } from './failures.ts';
import type { Delivery } from './open.ts';
import {
  byLane,
  byTurns,
  countObjects,
  type Held,
  inPieces,
  lanesOf,
  leftOf,
  objectsOf,
  PART_MS,
  type Part,
  workspacesOf,
} from './parts.ts';
import { HOLDS_ONE, runTogether } from './run.ts';
import { createApart } from './settle-alone.ts';

const FIRST_RETRY_MS = 20;
const LONGEST_RETRY_MS = 1000;

/** At once; a third one finds both cores busy, or the disk. */
const MAX_TRANSACTIONS = 2;

/**
 * Objects that are worth a transaction of their own beside one that is running: with as many, a transaction's
 * round trips and its COMMIT cost little, and this process works on one while Postgres works on the other. Fewer
 * wait for it to end, and share the next one.
 */
const LARGE = 200;

/** Milliseconds from which on a transaction was slow: the next one is given half as much, and so on. */
const SLOW_MS = 1000;

/** Milliseconds up to which it was quick: the next one may be twice as large. */
const QUICK_MS = 250;

/** Objects from which on nothing is cut: no lane hands out more. */
const ALL = 16_384;

/** Milliseconds for which the next part waits for what lanes hand in. */
const PATIENCE_MS = 500;

/**
 * Hears that a batch of its lane was cut, and may hand in what waits behind it: others have their turn meanwhile.
 *
 * @param pending ids of the lane's envelopes that are not applied yet
 */
export type OnCut = (pending: ReadonlySet<string>) => Promise<void>;

const NOTHING: Left = { envelopes: new Set(), workspaces: new Set(), over: new Set(), size: 0 };

const UNKNOWN: Failed = { times: 0, signature: undefined };

/**
 * Collects the envelopes that this process holds, a run of each lane, and applies all that are there in one
 * transaction. No timer: what arrives during a transaction waits for the next, unless it is large enough for one of
 * its own beside it, or the one that runs is in trouble. A batch that takes long is cut into parts (workers/batch/parts.ts):
 * what is left of it is in the next transaction, with what has come meanwhile.
 *
 * A transient error is retried here, with the envelopes in hand: giving a job back would put it behind later
 * ones. One that the objects may be to blame for is taken apart: each lane goes on for itself, beside the others, and
 * each envelope in it, until the object is found.
 */
export function createCoalescer(
  pool: Pool,
  metrics: WorkerMetrics,
  onDeadLetters: (ids: string[]) => void,
  onRemoved: () => void,
  log: Log,
) {
  let held: Held[] = [];
  /** Lanes of which a part is in a transaction: what is held of them comes behind that part. */
  const lanesInWork = new Set<number>();
  let transactions = 0;
  /** Of the transactions, those that have failed and are tried again. */
  let troubled = 0;
  /** Objects that a transaction may hold, but for those of its first envelope. */
  let most = ALL;
  /** Workspaces whose time was over, those that wait for the longest first. */
  const late = new Set<string>();
  /** Whether the last part was for the others: every second one has a round of those. */
  let wasForOthers = false;
  /** Objects that the last round of theirs could do. */
  let size = 1;
  const followers = new Map<number, OnCut>();
  // One connection stays for everything else that this process asks the store.
  const connections = Math.max(1, pool.options.max - 1);
  const abandon = new AbortController();
  const apart = createApart({ pool, metrics, log, signal: abandon.signal, report });

  /** Resolves when the envelopes have taken effect; never rejects. After `abandon` it may stay open. */
  function apply(...deliveries: Delivery[]): Promise<void> {
    return new Promise((done) => {
      held.push({ deliveries, done });
      runMore();
    });
  }

  function runMore(): void {
    const sound = transactions - troubled;
    if (transactions >= connections || sound >= MAX_TRANSACTIONS) return;
    const free = held.filter(isFree);
    if (free.length > 0 && (sound <= 0 || objectsOf(free) >= LARGE)) void runAll();
  }

  const isFree = (one: Held) => !lanesOf(one).some((lane) => lanesInWork.has(lane));

  async function runAll(): Promise<void> {
    transactions++;
    while (!abandon.signal.aborted) {
      const taken = take();
      if (taken.length === 0) break;
      const lanes = new Set(taken.flatMap(lanesOf));
      for (const lane of lanes) lanesInWork.add(lane);
      /** What is left of lanes waits for its turn, behind those of others. */
      const giveBack = async (left: Held[], given: Iterable<number>) => {
        held = [...left, ...held];
        await tellFollowers(left);
        for (const lane of given) if (lanes.delete(lane)) lanesInWork.delete(lane);
      };
      if (!(await settle(taken, giveBack))) break;
    }
    transactions--;
  }

  /** Lets the lanes hand in what waits behind these. */
  async function tellFollowers(left: Held[]): Promise<void> {
    const cut = new Set(left.flatMap(lanesOf));
    const hearings = [...cut].map(async (lane) => {
      const pending = held.flatMap(({ deliveries }) => deliveries.filter((one) => one.lane === lane));
      await followers.get(lane)?.(new Set(pending.map(({ id }) => id)));
    });
    await within(PATIENCE_MS, Promise.all(hearings)).catch(() => {});
  }

  /** As much as a transaction may hold of what is held of free lanes, in its order, but for those whose time was over. */
  function take(): Held[] {
    const free = held.filter(isFree);
    const later = held.filter((one) => !isFree(one));
    if (most >= ALL) {
      held = later;
      return free;
    }
    const [inFront, behind] = byTurns(free.flatMap(inPieces), late);
    // Whose time was over has a round at least.
    let count = Math.min(1, inFront.length);
    for (let objects = objectsOf(inFront.slice(0, 1)); count < inFront.length; count++) {
      objects += objectsOf([inFront[count]!]);
      if (objects > most) break;
    }
    held = [...inFront.slice(count), ...behind.slice(1), ...later];
    return [...inFront.slice(0, count), ...behind.slice(0, 1)];
  }

  /**
   * Lets a part of envelopes take effect: of all of them together, or of each lane for itself.
   *
   * @param giveBack frees lanes, and keeps what is left of them
   * @returns false: abandoned
   */
  async function settle(
    batch: Held[],
    giveBack: (left: Held[], lanes: Iterable<number>) => Promise<void>,
  ): Promise<boolean> {
    const deliveries = batch.flatMap((one) => one.deliveries);
    let before = { failed: UNKNOWN, whole: false };
    if (!deliveries.some(({ id }) => apart.knows(id))) {
      const ended = await settleTogether(deliveries);
      if (ended === 'abandoned') return false;
      if ('envelopes' in ended) {
        await giveBack(leftOf(batch, ended.envelopes), batch.flatMap(lanesOf));
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
        runMore();
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
    try {
      for (let wait = FIRST_RETRY_MS; !abandon.signal.aborted; wait = Math.min(wait * 2, LONGEST_RETRY_MS)) {
        const started = performance.now();
        try {
          wasForOthers = late.size > 0 && !wasForOthers;
          const part: Part = { milliseconds: PART_MS, late: new Set(late), isForOthers: wasForOthers, size };
          const outcome = await runTogether(pool, deliveries, part);
          report(deliveries, outcome, performance.now() - started);
          noteTurns(deliveries, outcome);
          return (outcome.kind === 'applied' && outcome.left) || NOTHING;
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
          runMore();
          metrics.retries.inc();
          log.warn({ err: error, envelopes, retry_in_ms: wait }, 'not applied yet');
          const times = await failures.count(error);
          if (times > 0 && (fault === 'lasting' || times >= triesOf(error))) {
            log.error({ err: error, envelopes }, 'what may fail the same way each time is tried apart');
            most = Math.max(1, Math.min(most, countObjects(deliveries)) >> 1);
            return failures.sofar();
          }
          await sleep(wait, undefined, { signal: abandon.signal }).catch(() => {});
        }
      }
      return 'abandoned';
    } finally {
      if (isTroubled) troubled--;
    }
  }

  /** Whose time was over goes behind the others, until nothing is left of it. */
  function noteTurns(deliveries: Delivery[], outcome: Outcome): void {
    const left = outcome.kind === 'applied' ? outcome.left : undefined;
    if (late.size > 0)
      for (const workspace of deliveries.flatMap(workspacesOf))
        if (!left?.workspaces.has(workspace)) late.delete(workspace);
    if (left && left.over.size > 0) size = left.size;
    for (const workspace of left?.over ?? []) {
      late.delete(workspace);
      late.add(workspace);
    }
  }

  function report(deliveries: Delivery[], outcome: Outcome, milliseconds: number): void {
    const { objects, deadLetters } = outcome.kind === 'applied' ? outcome : { objects: 0, deadLetters: [] };
    metrics.batches.inc({ outcome: outcome.kind });
    metrics.applied.inc(objects);
    metrics.deadLetters.inc(deadLetters.length);
    metrics.applySeconds.observe(milliseconds / 1000);
    metrics.batchObjects.observe(objects);
    if (milliseconds > SLOW_MS) most = Math.max(1, Math.min(most, objects) >> 1);
    else if (milliseconds < QUICK_MS) most = Math.min(ALL, most * 2);
    log.info(
      {
        outcome: outcome.kind,
        jobs: deliveries.map(({ id }) => id),
        lanes: deliveries.map(({ lane }) => lane),
        request_ids: deliveries.flatMap(requestIds),
        applied: objects,
        dead_letters: deadLetters.length,
        ms: Math.round(milliseconds * 10) / 10,
      },
      'job',
    );
    if (deadLetters.length > 0) onDeadLetters(deadLetters);
    if (outcome.kind === 'applied' && outcome.removed) onRemoved();
  }

  return {
    apply,
    /** From now on the lane hears of it when a batch of its own was cut. */
    follow(lane: number, onCut: OnCut): void {
      followers.set(lane, onCut);
    },
    /** Stops retrying: what is not applied is delivered again to another worker. */
    abandon: () => abandon.abort(),
  };
}

/** Of whatever a lane held: an envelope of another release may have a shape of its own. */
function requestIds({ envelope }: Delivery): string[] {
  return Array.isArray(envelope?.requests) ? envelope.requests.map((request) => request?.request_id) : [];
}

export type Coalescer = ReturnType<typeof createCoalescer>;
