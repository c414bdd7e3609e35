import { LRUCache } from 'lru-cache';
import { tracing } from '../../src/platform/tracing.ts';
import { traceTransaction } from '../../src/queue/spans.ts';
import { countLanes, countUsage } from '../../src/store/counters.ts';
import { type Connection, inTransaction, type Limits, type Pool } from '../../src/store/database.ts';
import { markReplayed, selectLetters } from '../../src/store/dead-letters.ts';
import { isDistributed, takePlace } from '../../src/store/distributed.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { recordWhole } from '../../src/store/ledger.ts';
import { sendTogether } from '../../src/store/send-together.ts';
import { appendLog } from '../../src/store/stream-log.ts';
import { type Applied, addApplied, applySome, nothingApplied, SMALL_ROUND, type Terms } from './apply.ts';
import { type BisectionTerms, bisect } from './bisect.ts';
import { endedOf, notAppliedBefore, type Share, sharesOf, together, untouched } from './by-workspace.ts';
import type { BatchResult } from './failures.ts';
import { cutAtDeletes, type Delivery, type Opened, open } from './open.ts';
import { claim, endPart, inTurns, leave, nothingLeft, type Part, WHOLE, withoutDone } from './parts.ts';
import { tallyLanes, tallyUsage } from './report.ts';
import type { WorkItem } from './work-item.ts';

/** What is applied of a batch at once. */
type Apply = (tx: Connection, items: WorkItem[], terms: Terms) => Promise<Applied>;

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
    const applied = await bisect(tx, items, { ...suspicion, now, until, ...(streamed && { streamed }) });
    // What fails from here on is no object's doing.
    suspicion.inHand([]);
    return applied;
  };
  return run(pool, deliveries, { apply, part });
}

export const HOLDS_ONE = 'a batch holds an object that cannot be applied';

interface RunOptions {
  apply: Apply;
  part: Part;
}

/** The trunk's fourth stop: one transaction, from the lanes to COMMIT. */
async function run(pool: Pool, deliveries: Delivery[], given: RunOptions): Promise<BatchResult> {
  const transact = (await isDistributed(pool))
    ? () => runShares(pool, deliveries, given)
    : () => inTransaction(pool, (tx, commit) => applyClaimed(tx, deliveries, { ...given, commit }), LIMITS);
  if (!tracing) return transact();
  const { result, ids } = await traceTransaction(deliveries, transact, described);
  return { ...result, ids };
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
      return applyClaimed(tx, share.deliveries, { ...given, part, commit });
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

async function applyClaimed(
  tx: Connection,
  deliveries: Delivery[],
  { commit, ...given }: RunOptions & { commit: () => Promise<unknown> },
): Promise<BatchResult> {
  const started = performance.now();
  const claimed = await claim(tx, deliveries);
  const { mine, now, streamed } = claimed;
  if (mine.length === 0) return { kind: 'skipped' };

  const opened = withoutDone(open(mine), claimed.left);
  const { milliseconds, giveWay } = given.part;
  const until = started + milliseconds;
  const terms = { now, until, poison: new Map(), streamed, ...(giveWay && { giveWay }) };
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

/** Applies stretch by stretch, each in its turns, until the time of the part is over. */
async function applyStretches(
  tx: Connection,
  opened: Opened,
  { apply, part, terms }: RunOptions & { terms: Terms },
) {
  const applied: WorkItem[] = [];
  const lost = new Set<string>();
  /** Dead letters before a delete of the same stretch: it may take them away, and their replay is in order. */
  const beforeDelete = new Set<string>();
  const total = nothingApplied();
  const left = nothingLeft();
  for (const stretch of cutAtDeletes(opened)) {
    if (left.origins.length > 0) {
      leave(left, stretch);
      continue;
    }
    if (opened.replayed.size > 0) await leaveOutForgotten(tx, stretch);
    if (stretch.deadLetters.length > 0) await insertDeadLetters(tx, stretch.deadLetters);
    for (const { id } of stretch.deadLetters) lost.add(id);
    for (const [place, items] of inTurns(stretch, part).entries()) {
      if (place > 0 && part.isForOthers) {
        leave(left, { items, deadLetters: [] });
        continue;
      }
      // Most of what is loaded for all of them would be loaded in vain, once more in each part.
      const isLate = items.length > 0 && part.late.has(items[0]!.workspaceId);
      const { count, ...done } = await apply(
        tx,
        items,
        isLate ? { ...terms, size: part.size ?? SMALL_ROUND } : terms,
      );
      addApplied(total, { count, ...done });
      for (const { item } of done.refused) lost.add(item.object.id);
      const tookEffect = (item: WorkItem) => lost.size === 0 || !lost.has(item.object.id);
      for (let index = 0; index < count; index++) if (tookEffect(items[index]!)) applied.push(items[index]!);
      leave(left, { items: items.slice(count), deadLetters: [] });
      const next = items[count];
      if (next) left.over.add(next.workspaceId);
      left.size = done.size;
    }
    if (stretch.items.some(({ object }) => object.kind === 'delete'))
      for (const { object } of stretch.items) beforeDelete.add(object.id);
  }
  return { ...total, applied, lost, beforeDelete, left };
}

/** A dead letter that a delete took away while its replay was on its way has no effect any more. */
async function leaveOutForgotten(tx: Connection, stretch: Opened): Promise<void> {
  const { items, deadLetters, replayed } = stretch;
  const keys = [
    ...items.map(({ object, workspaceId }) => ({ id: object.id, workspaceId })),
    ...deadLetters.map(({ id, workspaceId }) => ({ id, workspaceId })),
  ];
  const asked = keys.filter(({ id }) => replayed.has(id));
  const kept = new Set((await selectLetters(tx, asked)).map(({ id }) => id));
  const forgotten = new Set(asked.flatMap(({ id }) => (kept.has(id) ? [] : [id])));
  if (forgotten.size === 0) return;
  stretch.items = items.filter(({ object }) => !forgotten.has(object.id));
  stretch.deadLetters = deadLetters.filter(({ id }) => !forgotten.has(id));
}
