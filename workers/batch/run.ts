import { LRUCache } from 'lru-cache';
import type { Log } from '../../src/platform/log.ts';
import { tracing } from '../../src/platform/tracing.ts';
import { traceTransaction } from '../../src/queue/spans.ts';
import { countLanes, countUsage } from '../../src/store/counters.ts';
import {
  type Connection,
  inTransaction,
  type Limits,
  type Pool,
  sendTogether,
} from '../../src/store/database.ts';
import { markReplayed } from '../../src/store/dead-letters.ts';
import { isDistributed, takePlace } from '../../src/store/distributed.ts';
import { recordWhole } from '../../src/store/ledger.ts';
import { appendLog } from '../../src/store/stream-log.ts';
import { applySome } from './apply.ts';
import { type BisectionTerms, bisect } from './bisect.ts';
import { endedOf, notAppliedBefore, type Share, sharesOf, together, untouched } from './by-workspace.ts';
import { type Claimed, claim, endPart, withoutDone } from './claim.ts';
import { type BatchResult, classify } from './failures.ts';
import type { UsersOfBatch } from './known-users.ts';
import { type Delivery, open } from './open.ts';
import { type Part, WHOLE } from './parts.ts';
import { tallyLanes, tallyUsage } from './report.ts';
import { type Apply, applyStretches, type RunOptions } from './stretches.ts';

/**
 * Statements of a batch take milliseconds. One that takes this long holds everybody up, and will do so again: what may be
 * to blame gets more time alone. A wait for a lock fails before its statement does, and is nobody's fault.
 */
export const LIMITS: Limits = { statement: 4000, lock: 2500 };

/**
 * The journey of a batch, from its lanes to COMMIT, in one transaction: claim the envelopes in the ledger, open and check
 * them, apply them, note dead letters and counts.
 *
 * @param part how much of them
 * @throws whatever keeps one of the objects from taking effect. Nothing has taken effect then, or all of it: the ledger
 * knows which
 */
export function applyTogether(pool: Pool, deliveries: Delivery[], part: Part = WHOLE): Promise<BatchResult> {
  return run(pool, deliveries, { apply: applySome, part });
}

/** What is known of objects that fail. */
export type Suspicion = Omit<BisectionTerms, 'now' | 'until'>;

/**
 * The same by bisection: what one of the objects is to blame for ends as its dead letter, and the others take effect.
 *
 * @throws what is nobody's fault, or chance
 */
export function applyBisecting(
  pool: Pool,
  deliveries: Delivery[],
  { suspicion, part }: { suspicion: Suspicion; part: Part },
): Promise<BatchResult> {
  const apply: Apply = async (tx, items, { now, until, streamed }) => {
    // Of parts that are taken back nothing may be known: users are looked up.
    const applied = await bisect(tx, items, { ...suspicion, now, until, ...(streamed && { streamed }) });
    // What fails from here on is no object's doing.
    suspicion.inHand([]);
    return applied;
  };
  return run(pool, deliveries, { apply, part });
}

/** Applies a batch whole; once more by bisection when the store refuses something of it. */
export function applyBatch(pool: Pool, deliveries: Delivery[], log: Log): Promise<BatchResult> {
  return applyPart(pool, deliveries, { log, part: WHOLE });
}

/** The same with a part of the batch. */
export async function applyPart(
  pool: Pool,
  deliveries: Delivery[],
  { log, part }: { log: Log; part: Part },
): Promise<BatchResult> {
  try {
    return await applyTogether(pool, deliveries, part);
  } catch (error) {
    if (classify(error) === 'transient') throw error;
    log.warn({ err: error, envelopes: deliveries.map(({ id }) => id) }, HOLDS_ONE);
    return await applyBisecting(pool, deliveries, { suspicion: noSuspicion(), part });
  }
}

export const HOLDS_ONE = 'a batch holds an object that cannot be applied';

/** Of objects of which nothing is known but that they fail. */
export function noSuspicion(): Suspicion {
  return {
    poison: new Map(),
    starts: new Set(),
    failed: { times: 0, signature: undefined },
    inHand() {},
    async found() {},
  };
}

/** The trunk's fourth stop: one transaction, from the lanes to COMMIT. */
async function run(pool: Pool, deliveries: Delivery[], given: RunOptions): Promise<BatchResult> {
  const transact = (await isDistributed(pool))
    ? () => runShares(pool, deliveries, given)
    : () => runWhole(pool, deliveries, given);
  if (!tracing) return transact();
  const { result, ids } = await traceTransaction(deliveries, transact, described);
  return { ...result, ids };
}

/** One transaction for all of them. What it learns of users holds from its COMMIT on. */
async function runWhole(pool: Pool, deliveries: Delivery[], given: RunOptions): Promise<BatchResult> {
  const { users } = given.part;
  let learnt: UsersOfBatch | undefined;
  const apply = async (tx: Connection, commit: () => Promise<unknown>) => {
    const started = performance.now();
    const claimed = await claim(tx, deliveries, users);
    learnt = claimed.users;
    return applyClaimed(tx, claimed, { ...given, commit, started });
  };
  try {
    const result = await inTransaction(pool, apply, LIMITS);
    learnt?.keep();
    return result;
  } catch (error) {
    users?.forgetAll();
    throw error;
  }
}

/**
 * A transaction for each workspace, one after the other, as long as the time of the part lasts. One that fails keeps nothing
 * of those before it: their ledger rows are there when all are tried again.
 */
async function runShares(pool: Pool, deliveries: Delivery[], given: RunOptions): Promise<BatchResult> {
  const until = performance.now() + given.part.milliseconds;
  const begun = await notAppliedBefore(pool, deliveries);
  const { late, isForOthers } = given.part;
  const shares = sharesOf(begun, late);
  const isLate = ({ workspaceId }: Share) => late.has(workspaceId);
  const leavesLate = isForOthers && !shares.every(isLate);
  const results: BatchResult[] = [];
  // What had its turn in an earlier part is skipped, and is none of this one. Those whose time was over have a turn as well.
  const hasBegun = { inTime: false, late: false };
  for (const share of shares) {
    const turn = isLate(share) ? 'late' : 'inTime';
    if ((hasBegun[turn] && performance.now() > until) || (leavesLate && isLate(share))) {
      results.push(untouched(share));
      continue;
    }
    const part = { ...given.part, milliseconds: until - performance.now() };
    await makePlace(pool, share.workspaceId);
    const apply = async (tx: Connection, commit: () => Promise<unknown>) => {
      await takePlace(tx, share.workspaceId);
      const started = performance.now();
      return applyClaimed(tx, await claim(tx, share.deliveries), { ...given, part, commit, started });
    };
    const result = await inTransaction(pool, apply, LIMITS);
    hasBegun[turn] ||= result.kind === 'applied';
    results.push(result);
  }
  const all = together(
    shares.flatMap((share) => share.deliveries),
    results,
  );
  const ended = endedOf(begun, all);
  if (ended.length > 0) await recordWhole(pool, ended);
  return all;
}

const placed = new WeakMap<Pool, LRUCache<string, true>>();

/**
 * The first transaction of a workspace would be the only one until it ends: whoever takes the same place waits for whether
 * it is kept. So it is there before, and taken by all of them at once.
 */
async function makePlace(pool: Pool, workspaceId: string): Promise<void> {
  const known = placed.get(pool) ?? new LRUCache<string, true>({ max: 10_000 });
  placed.set(pool, known);
  if (known.get(workspaceId)) return;
  await inTransaction(pool, (tx) => takePlace(tx, workspaceId), LIMITS);
  known.set(workspaceId, true);
}

/** For the span of a transaction. */
function described(result: BatchResult): Record<string, string | number> {
  if (result.kind === 'skipped') return { 'penstock.outcome': 'skipped' };
  return {
    'penstock.outcome': result.left ? 'cut' : 'applied',
    'penstock.objects.applied': result.objects,
    'penstock.dead_letters': result.deadLetters.length,
  };
}

/** @param given.started when the claim began, of `performance.now()` */
async function applyClaimed(
  tx: Connection,
  claimed: Claimed,
  { commit, started, ...given }: RunOptions & { commit: () => Promise<unknown>; started: number },
): Promise<BatchResult> {
  const { mine, now, streamed, users } = claimed;
  if (mine.length === 0) return { kind: 'skipped' };

  const opened = withoutDone(open(mine), claimed.left);
  const { milliseconds, giveWay } = given.part;
  const until = started + milliseconds;
  const terms = {
    ...{ now, until, poison: new Map(), streamed },
    ...(giveWay && { giveWay }),
    ...(users && { users }),
  };
  const { applied, lost, beforeDelete, leavesTombstones, namedElsewhere, left, entries } =
    await applyStretches(tx, opened, {
      ...given,
      terms,
    });
  const replayed =
    opened.replayed.size === 0
      ? []
      : applied.flatMap(({ object: { id }, workspaceId }) =>
          opened.replayed.has(id) ? [{ id, workspaceId }] : [],
        );
  const envelopes = await endPart(tx, claimed, left);
  const seconds = (performance.now() - started) / 1000;
  const usage = tallyUsage(applied);
  for (const { workspace_id, attributes } of usage) users?.count(workspace_id, attributes);
  const counts = { applied, namedElsewhere, deadLetters: lost.size, seconds, cut: envelopes };
  const [marked] = await sendTogether(tx, [
    () => replayed.length > 0 && markReplayed(tx, replayed),
    () => usage.length > 0 && countUsage(tx, usage),
    () => countLanes(tx, tallyLanes(mine, counts)),
    // The last: who waits for this transaction has later ids.
    ...entries.map((some) => () => appendLog(tx, some, now)),
    // Of what is replayed it has to be known first whether it is there still.
    () => replayed.length === 0 && commit(),
  ]);
  if (marked && !replayed.every(({ id }) => marked.has(id) || beforeDelete.has(id))) {
    // What was looked up after that may have been made anew. Another try leaves it out.
    throw new Error('a dead letter was deleted with its user while it was being replayed');
  }
  return {
    kind: 'applied',
    ...{ objects: applied.length, deadLetters: [...lost], leavesTombstones, seconds },
    ...(envelopes.size > 0 && {
      left: { envelopes, workspaces: left.workspaces, over: left.over, size: left.size },
    }),
  };
}
