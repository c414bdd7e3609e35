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
 * Timeouts in milliseconds for several objects, and for one object alone. If the first are too short for valid objects,
 * the second are not. The lock timeout is shorter than the statement timeout; otherwise, a wait for a lock would look
 * like slow objects.
 */
export const BISECTING: Limits = { statement: 2000, lock: 1200 };
export const ALONE: Limits = { statement: 8000, lock: 5000 };

/** Number of parts after a timeout. Each level of the bisection can cost the timeouts of all its parts. */
const PARTS_OF_SLOW = 16;

/** Number of parts after any other error, which Postgres reports immediately. */
const PARTS = 4;

/**
 * Maximum number of objects that are probed individually after Postgres has refused a part. The probes are pipelined: a
 * probe costs about 1 ms, a separate attempt five times as much.
 */
const TRIED_ALONE = 32;

/** Input and callbacks of a bisection. */
export interface BisectionTerms extends Terms {
  /** Ids of objects at which parts begin: an object in this set is not applied together with the objects before it. */
  starts: ReadonlySet<string>;
  /** How often a part that contains these objects has failed in the same way, and the signature of the last error. */
  failed: { times: number; signature: string | undefined };
  /** Called for an object that cannot be applied, before its dead letter is written. @throws to give up for now */
  found(item: WorkItem, reason: string, fault: Fault): Promise<void>;
}

/** Result of a bisection. */
export interface Bisected {
  applied: Applied;
  /** The given starts and the starts of all cuts, so that the next transaction does not have to find them again. */
  starts: ReadonlySet<string>;
}

/** Raised when a bisection cannot continue; `cause` is the reason. */
export class BisectionStopped extends Error {
  override name = 'BisectionStopped';
  /** Objects of the last attempt. */
  readonly hand: WorkItem[];
  /** Starts that were found until then: see `Bisected`. */
  readonly starts: ReadonlySet<string>;

  constructor(cause: unknown, { hand, starts }: Pick<BisectionStopped, 'hand' | 'starts'>) {
    super(reasonOf(cause), { cause });
    this.hand = hand;
    this.starts = starts;
  }
}

/**
 * Applies objects by bisection: in parts, in order, each in a savepoint, until the time is over. A part that fails is
 * split into smaller parts. An object that fails alone is poison.
 *
 * @throws {BisectionStopped} for an error that no object causes or that may be chance; the transaction can then only be
 * rolled back
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

/** Continues without these objects, which are poison too. */
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

/** Applies one part after the other until the time is over. */
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

/** @throws an error that no object causes or that has broken the connection, so that no savepoint is left */
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
 * Returns the reasons by object id for objects that Postgres refuses individually; all their effects are rolled back.
 * Objects that it refuses only in combination with others are not included.
 */
async function refusedAlone(
  tx: Connection,
  items: WorkItem[],
  { now, poison }: BisectionTerms,
): Promise<Poison> {
  const asked = items.filter(({ object }) => !poison.has(object.id));
  const loaded = await inSavepoint(tx, async () => {
    const loads = asked.map((item) => load(tx, [item], { now, poison }));
    // All loads have to end before the savepoint does, so that they send no statement after it.
    await Promise.allSettled(loads);
    return answersTo(loads);
  });
  if ('error' in loaded) return new Map();
  const refused = new Map<string, string>();
  const probes: Promise<unknown>[] = [];
  const send = (statement: string) => {
    const sent = tx.query(statement);
    // Awaited below; without this handler, an earlier failure would be an unhandled rejection.
    sent.catch(() => {});
    probes.push(sent);
  };
  for (const [index, item] of asked.entries()) {
    const { changes } = loaded.done[index]!;
    const note = (error: unknown) => {
      if (blameOf(error) === 'refused') refused.set(item.object.id, reasonOf(error));
    };
    const folded = await fold([item], changes, { poison, until: Number.POSITIVE_INFINITY }).catch(note);
    // An object that is refused in memory needs no probe.
    if (!folded || changes.refused.length > 0) continue;
    send('savepoint probe');
    probes.push(probe(tx, changes, now).catch(note));
    send('rollback to savepoint probe');
    send('release savepoint probe');
  }
  await Promise.all(probes);
  return refused;
}

/** Writes the changes of one object. An error while sending is handled like a refusal by Postgres. */
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

/** Splits a list into the given number of parts, whose sizes differ by at most one. */
export function cutEvenly<One>(all: One[], parts: number): One[][] {
  return Array.from({ length: parts }, (_, part) =>
    all.slice(Math.floor((part * all.length) / parts), Math.floor(((part + 1) * all.length) / parts)),
  );
}
