import type { Connection } from '../../src/store/database.ts';
import { answersTo, type Limits } from '../../src/store/transactions.ts';
import {
  type Applied,
  applySome,
  joinApplied,
  load,
  NOTHING_APPLIED,
  type Poison,
  type Terms,
} from './apply.ts';
import type { Changes } from './changes.ts';
import { blameOf, type Fault, reasonOf, signatureOf, TRIES } from './failures.ts';
import { fold } from './fold/fold.ts';
import type { WorkItem } from './work-item.ts';
import { writeChanges } from './write.ts';

/**
 * Limits of several objects, and of one alone: where the first are too tight for sound objects, the second are not. A wait
 * for a lock fails before its statement does, or it would look as if the objects took too long.
 */
export const BISECTING: Limits = { statement: 2000, lock: 1200 };
export const ALONE: Limits = { statement: 8000, lock: 5000 };

/** Parts that objects are cut into in which something takes too long: each level of them costs what all are given. */
const PARTS_OF_SLOW = 16;

/** Parts otherwise: what the store refuses it refuses at once. */
const PARTS = 4;

/**
 * Objects that are tried one by one, when they are few and the store has refused something of them. They are sent
 * without waiting for each other's answers: one costs about a millisecond, an attempt of its own five times as much.
 */
const TRIED_ALONE = 32;

/** What a bisection goes by, and whom it tells. */
export interface BisectionTerms extends Terms {
  /** Ids of objects at which parts begin that are not tried together with what is before. */
  starts: ReadonlySet<string>;
  /** Times that what these objects are among has failed already, and how the last time. */
  failed: { times: number; signature: string | undefined };
  /** Told of an object that cannot be applied, before its dead letter is written. @throws to give up for now */
  found(item: WorkItem, reason: string, fault: Fault): Promise<void>;
}

/** What a bisection has come to. */
export interface Bisected {
  applied: Applied;
  /** Those that it was given, and one for each of its cuts: the next transaction need not find out again. */
  starts: ReadonlySet<string>;
}

/** Ends a bisection that cannot go on, for the reason that is its cause. */
export class BisectionStopped extends Error {
  override name = 'BisectionStopped';
  /** What was tried together at last. */
  readonly hand: WorkItem[];
  /** As far as it had come: see `Bisected`. */
  readonly starts: ReadonlySet<string>;

  constructor(cause: unknown, { hand, starts }: Pick<BisectionStopped, 'hand' | 'starts'>) {
    super(reasonOf(cause), { cause });
    this.hand = hand;
    this.starts = starts;
  }
}

/**
 * Bisection: applies in parts, each in a savepoint, in order, until the time is over. A part that fails is cut into
 * smaller ones. What fails alone is poison.
 *
 * @throws {BisectionStopped} by what is nobody's fault, or may be chance; the transaction is spoilt then
 */
export async function bisect(tx: Connection, items: WorkItem[], terms: BisectionTerms): Promise<Bisected> {
  const { starts } = terms;
  try {
    return await tryOrCut(tx, items, terms);
  } catch (error) {
    throw error instanceof BisectionStopped ? error : new BisectionStopped(error, { hand: items, starts });
  }
}

async function tryOrCut(tx: Connection, items: WorkItem[], terms: BisectionTerms): Promise<Bisected> {
  const { failed, starts } = terms;
  if (items.length === 0) return { applied: NOTHING_APPLIED, starts };
  const begun = cutAt(items, starts);
  if (begun.length > 1) return inOrder(tx, begun, terms);
  const tried = await inSavepoint(tx, async () => {
    const [, applied] = await answersTo([
      setPatience(tx, items.length === 1 ? ALONE : BISECTING),
      applySome(tx, items, terms),
    ]);
    return applied;
  });
  if ('done' in tried) return { applied: tried.done, starts };
  const { fault, error } = tried;
  const signature = signatureOf(error);
  const times = signature === failed.signature ? failed.times + 1 : 1;
  const after = { ...terms, failed: { times, signature } };
  if (items.length === 1) {
    if (fault === 'lasting' && times < TRIES) return bisect(tx, items, after);
    return refuse(tx, items, {
      found: new Map([[items[0]!.object.id, reasonOf(error)]]),
      fault,
      terms: after,
    });
  }
  if (fault === 'refused' && items.length <= TRIED_ALONE) {
    const refused = await refusedAlone(tx, items, terms);
    if (refused.size > 0) return refuse(tx, items, { found: refused, fault, terms: after });
  }
  const parts = cutEvenly(items, Math.min(items.length, fault === 'lasting' ? PARTS_OF_SLOW : PARTS));
  const cuts = parts.map(([first]) => first!.object.id);
  return inOrder(tx, parts, { ...after, starts: new Set([...starts, ...cuts]) });
}

/** Goes on without these: they are poison as well. */
async function refuse(
  tx: Connection,
  items: WorkItem[],
  { found, fault, terms }: { found: Poison; fault: Fault; terms: BisectionTerms },
): Promise<Bisected> {
  for (const item of items) {
    const reason = found.get(item.object.id);
    if (reason !== undefined) await terms.found(item, reason, fault);
  }
  return bisect(tx, items, {
    ...terms,
    poison: new Map([...terms.poison, ...found]),
  });
}

/** One part after the other, until the time is over. */
async function inOrder(tx: Connection, parts: WorkItem[][], terms: BisectionTerms): Promise<Bisected> {
  const all: Applied[] = [];
  let { starts } = terms;
  for (const part of parts) {
    const bisected = await bisect(tx, part, { ...terms, starts });
    const { applied } = bisected;
    all.push(applied);
    starts = bisected.starts;
    if (applied.count < part.length || performance.now() >= terms.until) break;
  }
  return { applied: joinApplied(all), starts };
}

type Tried<Result> = { done: Result } | { error: unknown; fault: Fault };

/** @throws what is nobody's fault, and what has broken the connection: there is no way back to the savepoint */
async function inSavepoint<Result>(tx: Connection, work: () => Promise<Result>): Promise<Tried<Result>> {
  try {
    const [, done] = await answersTo([tx.query('savepoint part'), work()]);
    await tx.query('release savepoint part');
    return { done };
  } catch (error) {
    const fault = blameOf(error);
    if (fault === undefined) throw error;
    await Promise.all([tx.query('rollback to savepoint part'), tx.query('release savepoint part')]);
    return { error, fault };
  }
}

/**
 * Those of the objects that the store refuses each for itself, and why; what they would do is taken back. Those that it
 * refuses only with what others of them do are not among them.
 */
async function refusedAlone(
  tx: Connection,
  items: WorkItem[],
  { now, poison }: BisectionTerms,
): Promise<Poison> {
  const asked = items.filter(({ object }) => !poison.has(object.id));
  const loaded = await inSavepoint(tx, async () => {
    const loads = asked.map((item) => load(tx, [item], { now, poison }));
    // None of them sends anything any more when the savepoint is gone.
    await Promise.allSettled(loads);
    return answersTo(loads);
  });
  if ('error' in loaded) return new Map();
  const refused = new Map<string, string>();
  const probes: Promise<unknown>[] = [];
  const send = (statement: string) => {
    const sent = tx.query(statement);
    // It is waited for further down, and may have failed by then.
    sent.catch(() => {});
    probes.push(sent);
  };
  for (const [index, item] of asked.entries()) {
    const { changes } = loaded.done[index]!;
    const note = (error: unknown) => {
      if (blameOf(error) === 'refused') refused.set(item.object.id, reasonOf(error));
    };
    const folded = await fold([item], changes, { poison, until: Number.POSITIVE_INFINITY }).catch(note);
    // What is refused in memory needs no statement to find out.
    if (!folded || changes.refused.length > 0) continue;
    send('savepoint probe');
    probes.push(probe(tx, changes, now).catch(note));
    send('rollback to savepoint probe');
    send('release savepoint probe');
  }
  await Promise.all(probes);
  return refused;
}

/** What cannot be sent fails as what the store refuses. */
async function probe(tx: Connection, changes: Changes, now: string): Promise<void> {
  await writeChanges(tx, changes, now).stored;
}

async function setPatience(tx: Connection, { statement, lock }: Limits): Promise<void> {
  await tx.query(`set local statement_timeout = ${statement}; set local lock_timeout = ${lock}`);
}

function cutAt(items: WorkItem[], starts: ReadonlySet<string>): WorkItem[][] {
  if (starts.size === 0) return [items];
  const parts: WorkItem[][] = [];
  for (const [index, item] of items.entries()) {
    if (index === 0 || starts.has(item.object.id)) parts.push([item]);
    else parts.at(-1)!.push(item);
  }
  return parts;
}

/** In so many parts, which differ by one object at most. */
export function cutEvenly<One>(all: One[], parts: number): One[][] {
  return Array.from({ length: parts }, (_, part) =>
    all.slice(Math.floor((part * all.length) / parts), Math.floor(((part + 1) * all.length) / parts)),
  );
}
