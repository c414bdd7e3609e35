import { validate as isVersionedUuid } from 'uuid';
import { tracing } from '../../src/platform/tracing.ts';
import { traceTransaction } from '../../src/queue/spans.ts';
import { recordAttributeNames } from '../../src/store/attribute-names.ts';
import { countLanes, countUsage } from '../../src/store/counters.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { markReplayed, selectLetters } from '../../src/store/dead-letters.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { claimEnvelopes, readCutEnvelopes } from '../../src/store/ledger.ts';
import { appendLog } from '../../src/store/stream-log.ts';
import { inTransaction, type Limits, sendTogether } from '../../src/store/transactions.ts';
import { type Applied, applySome, joinApplied, type Terms } from './apply.ts';
import { AttributeNames } from './attribute-names.ts';
import {
  type Claimed,
  cutAtDeletes,
  type Delivery,
  keyOf,
  type Opened,
  open,
  tracesOf,
  workspacesOf,
} from './open.ts';
import {
  type BatchResult,
  chosenOf,
  endPart,
  leftOf,
  type Part,
  type Usage,
  WHOLE,
  withoutDone,
} from './parts.ts';
import { describeBatch, tallyLanes, tallyUsage } from './report.ts';
import { runShares } from './shares.ts';
import type { WorkItem } from './work-item.ts';

/** How objects are applied: in rounds, or by bisection. */
export type Apply = (tx: Connection, items: WorkItem[], terms: Terms) => Promise<Applied>;

/**
 * Statements of a batch take milliseconds. One that takes this long holds everybody up, and will do so again: what may be
 * to blame gets more time alone. A wait for a lock fails before its statement does, and is nobody's fault.
 */
export const LIMITS: Limits = { statement: 4000, lock: 2500 };

export const HOLDS_ONE = 'a batch holds an object that cannot be applied';

/**
 * Applies a batch in one transaction.
 *
 * @param part how much of it
 * @throws whatever keeps one of the objects from taking effect. Nothing has taken effect then, or all of it: the ledger
 * knows which
 */
export function applyTogether(pool: Pool, deliveries: Delivery[], part: Part = WHOLE): Promise<BatchResult> {
  return transact(pool, deliveries, { apply: applySome, part });
}

/** How a transaction goes about a batch, and how much of it is done. */
interface Procedure {
  apply: Apply;
  part: Part;
}

/** What this process has recorded in each store. */
const attributeNames = new WeakMap<Pool, AttributeNames>();

/** Makes this process record the names of attributes again, after their rows were removed. */
export function forgetAttributeNames(pool: Pool): void {
  attributeNames.delete(pool);
}

function attributeNamesIn(pool: Pool): AttributeNames {
  const names = attributeNames.get(pool) ?? new AttributeNames();
  attributeNames.set(pool, names);
  return names;
}

/** Opens the transaction, or one of each workspace where tables are distributed, and its span where there is tracing. */
export async function transact(
  pool: Pool,
  deliveries: Delivery[],
  procedure: Procedure,
): Promise<BatchResult> {
  const names = attributeNamesIn(pool);
  const limits = procedure.part.limits ?? LIMITS;
  const runAll = (await isDistributed(pool))
    ? () =>
        runShares(pool, deliveries, {
          ...{ part: procedure.part, limits },
          run: (tx, own, ofShare) => run(tx, own, { ...procedure, ...ofShare, names }),
        })
    : () => inTransaction(pool, (tx, commit) => run(tx, deliveries, { ...procedure, commit, names }), limits);
  if (!tracing) return runAll();
  const { result, ids } = await traceTransaction(deliveries, runAll, describeBatch);
  return { ...result, ids };
}

/**
 * The trunk's fourth stop: the journey of a batch, from its lanes to COMMIT.
 *
 * 1. **Claim** the envelopes in the ledger: `claim`, below. What has taken effect before is not claimed again.
 * 2. **Open** them, and hold each object against its contract: open.ts.
 * 3. Apply the objects (`applyStretches`, below) in rounds, of which most batches have one (`applySome` of apply.ts): **load**
 *    whom they name (load-profiles.ts), **fold** in memory (fold/fold.ts), **write** whole sets (write.ts).
 * 4. End the part: what there was no time for stays in the lanes (`endPart` of parts.ts).
 * 5. Note what became of the objects, and **commit** (`noteAndCommit`, below).
 */
async function run(
  tx: Connection,
  deliveries: Delivery[],
  { apply, part, commit, names }: Procedure & { commit: Commit; names: AttributeNames },
): Promise<BatchResult> {
  const started = performance.now();
  const claimed = await claim(tx, deliveries);
  const { mine, now, streamed } = claimed;
  if (mine.length === 0) return { kind: 'skipped' };

  const [chosen, unchosen] = chosenOf(withoutDone(open(mine), claimed.left), mine, part);

  const { milliseconds, size } = part;
  const until = started + milliseconds;
  const terms = { now, until, poison: new Map(), streamed, ...(size !== undefined && { size }) };
  const done = await applyStretches(tx, chosen, { apply, terms });

  const { applied, lost, leavesTombstones } = done;
  const left = leftOf([...done.rest, unchosen]);
  await endPart(tx, claimed, left);

  const seconds = (performance.now() - started) / 1000;
  const ended = { ...done, claimed, cut: left.counts, seconds, replayed: chosen.replayed, names };
  await noteAndCommit(tx, ended, commit);
  return {
    kind: 'applied',
    ...{ objects: applied.length, deadLetters: [...lost], leavesTombstones, seconds },
    used: usageOf(chosen, done),
    ...(left.counts.size > 0 && { left: left.counts }),
  };
}

function usageOf({ items, deadLetters }: Opened, { loaded, rest, size }: Done): Usage {
  const objects = new Map<string, number>();
  const add = (workspaceId: string, count: number) =>
    objects.set(workspaceId, (objects.get(workspaceId) ?? 0) + count);
  for (const { workspaceId } of items) add(workspaceId, 1);
  for (const { workspaceId } of deadLetters) add(workspaceId, 1);
  for (const one of rest) {
    for (const { workspaceId } of one.items) add(workspaceId, -1);
    for (const { workspaceId } of one.deadLetters) add(workspaceId, -1);
  }
  return { objects, loaded, isCut: rest.length > 0, nextRound: size };
}

type Commit = () => Promise<unknown>;

/** What became of the objects of a part. */
interface Done extends Applied {
  /** Those that took effect. */
  applied: WorkItem[];
  /** Ids of those that are dead letters now. */
  lost: Set<string>;
  /** Dead letters before a delete of the same stretch: it may take them away, and their replay is in order. */
  beforeDelete: Set<string>;
  /** What there was no time for. */
  rest: Pick<Opened, 'items' | 'deadLetters'>[];
}

/** Applies stretch by stretch, until the time of the part is over. */
async function applyStretches(
  tx: Connection,
  opened: Opened,
  { apply, terms }: Pick<Procedure, 'apply'> & { terms: Terms },
): Promise<Done> {
  const parts: Applied[] = [];
  const applied: WorkItem[] = [];
  const lost = new Set<string>();
  const beforeDelete = new Set<string>();
  const rest: Pick<Opened, 'items' | 'deadLetters'>[] = [];
  for (const cut of cutAtDeletes(opened)) {
    if (rest.length > 0) {
      rest.push(cut);
      continue;
    }
    const stretch = cut.replayed.size > 0 ? await withoutForgotten(tx, cut) : cut;
    if (stretch.deadLetters.length > 0) await insertDeadLetters(tx, stretch.deadLetters);
    for (const { id } of stretch.deadLetters) lost.add(id);
    const { items } = stretch;
    const some = await apply(tx, items, terms);
    parts.push(some);
    for (const { item } of some.refused) lost.add(item.object.id);
    for (let index = 0; index < some.count; index++) {
      const item = items[index]!;
      if (lost.size === 0 || !lost.has(item.object.id)) applied.push(item);
    }
    if (some.count < items.length) rest.push({ items: items.slice(some.count), deadLetters: [] });
    if (stretch.items.some(isDelete)) for (const { object } of stretch.items) beforeDelete.add(object.id);
  }
  return { ...joinApplied(parts), applied, lost, beforeDelete, rest };
}

function isDelete({ object }: WorkItem): boolean {
  return object.kind === 'delete';
}

/** The same without dead letters that a delete took away while their replay was on its way: it has no effect any more. */
async function withoutForgotten(tx: Connection, stretch: Opened): Promise<Opened> {
  const { items, deadLetters, replayed } = stretch;
  const keys = [
    ...items.map(({ object, workspaceId }) => ({ id: object.id, workspaceId })),
    ...deadLetters.map(({ id, workspaceId }) => ({ id, workspaceId })),
  ];
  const asked = keys.filter(({ id }) => replayed.has(id));
  const kept = new Set((await selectLetters(tx, asked)).map(({ id }) => id));
  const forgotten = new Set(asked.flatMap(({ id }) => (kept.has(id) ? [] : [id])));
  if (forgotten.size === 0) return stretch;
  return {
    items: items.filter(({ object }) => !forgotten.has(object.id)),
    deadLetters: deadLetters.filter(({ id }) => !forgotten.has(id)),
    replayed,
  };
}

/** What is noted of a part beside its objects. */
interface Ended extends Done {
  claimed: Claimed;
  /** The envelopes of which something is left. */
  cut: ReadonlyMap<string, unknown>;
  seconds: number;
  /** Ids of objects that were dead letters. */
  replayed: ReadonlySet<string>;
  /** The names of custom attributes that this process has recorded. */
  names: AttributeNames;
}

/** Marks what was replayed, adds to the counts and to the log of streams, and commits in one write with that. */
async function noteAndCommit(tx: Connection, ended: Ended, commit: Commit): Promise<void> {
  const { claimed, applied, lost, beforeDelete, cut, seconds, namedElsewhere, entries } = ended;
  const replayed = ended.replayed.size === 0 ? [] : replaysAmong(applied, ended.replayed);
  const usage = tallyUsage(applied);
  const counts = { applied, namedElsewhere, deadLetters: lost.size, seconds, cut };
  const found = ended.names.newAmong(applied);
  const named = found.size === 0 ? [] : await ended.names.rowsOf(tx, found);
  const [marked] = await sendTogether(tx, [
    () => replayed.length > 0 && markReplayed(tx, replayed),
    // Shared with other lanes: what is locked so late is locked for the length of a COMMIT.
    () => named.length > 0 && recordAttributeNames(tx, named, claimed.now),
    () => usage.length > 0 && countUsage(tx, usage),
    () => countLanes(tx, tallyLanes(claimed.mine, counts)),
    // The last: who waits for this transaction has later ids.
    ...entries.map((some) => () => appendLog(tx, some, claimed.now)),
    // Of what is replayed it has to be known first whether it is there still.
    () => replayed.length === 0 && commit(),
  ]);
  if (marked && !replayed.every(({ id }) => marked.has(id) || beforeDelete.has(id))) {
    // What was looked up after that may have been made anew. Another try leaves it out.
    throw new Error('a dead letter was deleted with its user while it was being replayed');
  }
  // Where something was replayed, COMMIT follows and may fail.
  if (replayed.length === 0) ended.names.remember(named);
}

function replaysAmong(applied: WorkItem[], replayed: ReadonlySet<string>) {
  return applied.flatMap(({ object: { id }, workspaceId }) =>
    replayed.has(id) ? [{ id, workspaceId }] : [],
  );
}

/** Claims each envelope once, however often it is among those that were handed in. */
async function claim(tx: Connection, given: Delivery[]): Promise<Claimed> {
  const deliveries = [...new Map(given.map((delivery) => [delivery.id, delivery])).values()];
  const envelopes = deliveries.map((delivery) => ({ ...keyOf(delivery), traces: tracesOf(delivery) }));
  // Nobody has looked at the envelopes yet: what is no id has no destination.
  const workspaces = [...new Set(deliveries.flatMap(workspacesOf))].filter((id) => isVersionedUuid(id));
  const [{ claimed, now, streamed }, cut] = await sendTogether(tx, [
    () => claimEnvelopes(tx, envelopes, workspaces),
    () => readCutEnvelopes(tx, envelopes),
  ]);
  return {
    mine: deliveries.filter(({ id }) => claimed.has(id)),
    left: new Map(cut.map(({ id, left }) => [id, new Set(left)])),
    now,
    streamed,
  };
}
