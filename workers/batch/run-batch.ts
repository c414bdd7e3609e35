import { validate as isVersionedUuid } from 'uuid';
import { tracing } from '../../src/platform/tracing.ts';
import { traceTransaction } from '../../src/queue/spans.ts';
import { recordAttributeNames } from '../../src/store/attribute-names.ts';
import { countLanes, countUsage } from '../../src/store/counters.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { markReplayed, selectLocatedDeadLetters } from '../../src/store/dead-letters.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { claimEnvelopes, readCutEnvelopes } from '../../src/store/ledger.ts';
import { appendLog } from '../../src/store/stream-log.ts';
import { inTransaction, type Limits, sendPipelined } from '../../src/store/transactions.ts';
import { type Applied, applySome, joinApplied, NO_POISON, type Terms } from './apply.ts';
import { applyEach } from './apply-each.ts';
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

/**
 * Timeouts of a batch, in milliseconds. Its statements normally take milliseconds. A statement that takes this long
 * delays every workspace and would do so again, so the suspected objects are retried alone with more time. The lock
 * timeout is shorter, so that a wait for a lock is not taken for a slow statement: no object is to blame for it.
 */
export const LIMITS: Limits = { statement: 4000, lock: 2500 };

/** Attribute names that this process has recorded, by database. */
const attributeNames = new WeakMap<Pool, AttributeNames>();

/** Makes this process record attribute names again, after their rows were removed. */
export function forgetAttributeNames(pool: Pool): void {
  attributeNames.delete(pool);
}

function attributeNamesIn(pool: Pool): AttributeNames {
  const names = attributeNames.get(pool) ?? new AttributeNames();
  attributeNames.set(pool, names);
  return names;
}

/**
 * Applies a batch in one transaction, or in one per workspace if tables are distributed. If tracing is enabled, the
 * transaction has a span.
 *
 * @param part how much of the batch to apply, and how
 * @throws any error that prevents an object from taking effect. In that case, either no object or all objects of the
 * part have taken effect; the ledger records which
 */
export async function runBatch(pool: Pool, deliveries: Delivery[], part: Part = WHOLE): Promise<BatchResult> {
  const names = attributeNamesIn(pool);
  const limits = part.limits ?? LIMITS;
  const runAll = (await isDistributed(pool))
    ? () =>
        runShares(pool, deliveries, {
          ...{ part, limits },
          run: (tx, own, ofShare) => run(tx, own, { ...ofShare, names }),
        })
    : () => inTransaction(pool, (tx, commit) => run(tx, deliveries, { part, commit, names }), limits);
  if (!tracing) return runAll();
  const { result, ids } = await traceTransaction(deliveries, runAll, describeBatch);
  return { ...result, ids };
}

/**
 * Applies a batch, from its lanes to COMMIT: the fourth stop of an object's path through Penstock.
 *
 * 1. **Claim** the envelopes in the ledger: `claim`, below. An envelope that has already taken effect is not claimed.
 * 2. **Open** them and validate each object against its schema: open.ts.
 * 3. Apply the objects (`applyStretches`, below) in rounds; most batches have one (`applySome` in apply.ts): **load**
 *    the users that they name (load-profiles.ts), **fold** in memory (fold/fold.ts), **write** whole sets (write.ts).
 * 4. End the part: objects that did not fit into its time stay in the lanes (`endPart` in parts.ts).
 * 5. Record the result of each object and **commit** (`noteAndCommit`, below).
 */
async function run(
  tx: Connection,
  deliveries: Delivery[],
  { part, commit, names }: { part: Part; commit: Commit; names: AttributeNames },
): Promise<BatchResult> {
  const started = performance.now();
  const claimed = await claim(tx, deliveries);
  const { mine, now, streamed } = claimed;
  if (mine.length === 0) return { kind: 'skipped' };

  const [chosen, unchosen] = chosenOf(withoutDone(open(mine), claimed.left), mine, part);

  const { milliseconds, size } = part;
  const until = started + milliseconds;
  const poison = (await part.begin?.(chosen.items)) ?? NO_POISON;
  const terms = { now, until, poison, streamed, ...(size !== undefined && { size }) };
  const done = await applyStretches(tx, chosen, { terms, apply: part.hasSavepoints ? applyEach : applySome });

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

/** Results of the objects of a part. */
interface Done extends Applied {
  /** Objects that took effect. */
  applied: WorkItem[];
  /** Ids of the objects that are dead letters now. */
  lost: Set<string>;
  /** Ids of objects in a stretch with a delete, which may have removed their dead letters; a replay is still valid. */
  beforeDelete: Set<string>;
  /** Objects that did not fit into the time of the part. */
  rest: Pick<Opened, 'items' | 'deadLetters'>[];
}

/** Applies one stretch after the other until the time of the part is over. */
async function applyStretches(
  tx: Connection,
  opened: Opened,
  { apply, terms }: { apply: typeof applySome; terms: Terms },
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

/** Removes replays whose dead letter was deleted with its user while the replay was queued: they have no effect. */
async function withoutForgotten(tx: Connection, stretch: Opened): Promise<Opened> {
  const { items, deadLetters, replayed } = stretch;
  const keys = [
    ...items.map(({ object, workspaceId }) => ({ id: object.id, workspaceId })),
    ...deadLetters.map(({ id, workspaceId }) => ({ id, workspaceId })),
  ];
  const replays = keys.filter(({ id }) => replayed.has(id));
  const kept = new Set((await selectLocatedDeadLetters(tx, replays)).map(({ id }) => id));
  const forgotten = new Set(replays.flatMap(({ id }) => (kept.has(id) ? [] : [id])));
  if (forgotten.size === 0) return stretch;
  return {
    items: items.filter(({ object }) => !forgotten.has(object.id)),
    deadLetters: deadLetters.filter(({ id }) => !forgotten.has(id)),
    replayed,
  };
}

/** Results of a part with everything that is recorded along with them. */
interface Ended extends Done {
  claimed: Claimed;
  /** Envelopes with remaining objects, by id. */
  cut: ReadonlyMap<string, unknown>;
  seconds: number;
  /** Ids of the objects that are replayed dead letters. */
  replayed: ReadonlySet<string>;
  /** Names of custom attributes that this process has recorded. */
  names: AttributeNames;
}

/** Marks replayed dead letters, updates counters and the stream log, and commits, all sent in one write. */
async function noteAndCommit(tx: Connection, ended: Ended, commit: Commit): Promise<void> {
  const { claimed, applied, lost, beforeDelete, cut, seconds, namedElsewhere, entries } = ended;
  const replayed = ended.replayed.size === 0 ? [] : replaysAmong(applied, ended.replayed);
  const usage = tallyUsage(applied);
  const counts = { applied, namedElsewhere, deadLetters: lost.size, seconds, cut };
  const newNames = ended.names.newAmong(applied);
  const named = newNames.size === 0 ? [] : await ended.names.rowsOf(tx, newNames);
  const [marked] = await sendPipelined(tx, [
    () => replayed.length > 0 && markReplayed(tx, replayed),
    // Other lanes update the same rows, so these are locked last and only for the duration of a COMMIT.
    () => named.length > 0 && recordAttributeNames(tx, named, claimed.now),
    () => usage.length > 0 && countUsage(tx, usage),
    () => countLanes(tx, tallyLanes(claimed.mine, counts)),
    // Last, so that transactions that wait for the locks of this one get later ids in the stream log.
    ...entries.map((some) => () => appendLog(tx, some, claimed.now)),
    // With replays, it has to be checked first that their dead letters still exist.
    () => replayed.length === 0 && commit(),
  ]);
  if (marked && !replayed.every(({ id }) => marked.has(id) || beforeDelete.has(id))) {
    // The user was deleted meanwhile, and the replay may have created it again. A retry omits the replay.
    throw new Error('a dead letter was deleted with its user while it was being replayed');
  }
  // With replays, COMMIT follows later and may fail.
  if (replayed.length === 0) ended.names.remember(named);
}

function replaysAmong(applied: WorkItem[], replayed: ReadonlySet<string>) {
  return applied.flatMap(({ object: { id }, workspaceId }) =>
    replayed.has(id) ? [{ id, workspaceId }] : [],
  );
}

/** Claims each envelope once, even if it was delivered several times. */
async function claim(tx: Connection, given: Delivery[]): Promise<Claimed> {
  const deliveries = [...new Map(given.map((delivery) => [delivery.id, delivery])).values()];
  const envelopes = deliveries.map((delivery) => ({ ...keyOf(delivery), traces: tracesOf(delivery) }));
  // The envelopes are not validated yet. A workspace id that is not a UUID has no destination.
  const workspaces = [...new Set(deliveries.flatMap(workspacesOf))].filter((id) => isVersionedUuid(id));
  const [{ claimed, now, streamed }, cut] = await sendPipelined(tx, [
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
