import type { Connection, Limits } from '../../src/store/database.ts';
import {
  type Applied,
  addApplied,
  applySome,
  type Condemned,
  load,
  nothingApplied,
  type Terms,
} from './apply.ts';
import { blameOf, type Fault, reasonOf, signatureOf, TRIES } from './failures.ts';
import { fold } from './fold/fold.ts';
import type { Work } from './work.ts';
import { writeChanges } from './write.ts';

/**
 * What several objects have, and what one has: where the first is too little for sound ones, the second is not. A wait
 * for a lock fails before its statement does, or it would look as if the objects took too long.
 */
export const SEARCHING: Limits = { statement: 2000, lock: 1200 };
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

export interface Isolation extends Terms {
  /**
   * Ids of objects at which parts begin that are not tried together with what is before. Each cut is added: the next
   * transaction need not find out again.
   */
  starts: Set<string>;
  /** Times that what these objects are among has failed already, and how the last time. */
  failed: { times: number; signature: string | undefined };
  /** Told what is in hand, before each attempt. */
  inHand(works: Work[]): void;
  /** Told of an object that cannot be applied, before its dead letter is written. @throws to give up for now */
  found(work: Work, reason: string, fault: Fault): Promise<void>;
}

/**
 * Applies in parts, each in a savepoint, in order, until the time is over: what fails alone is what cannot be applied.
 *
 * @throws what is nobody's fault, or may be chance; the transaction is spoilt then
 */
export async function applyIsolating(tx: Connection, works: Work[], isolation: Isolation): Promise<Applied> {
  if (works.length === 0) return nothingApplied();
  const begun = cutAt(works, isolation.starts);
  if (begun.length > 1) return inOrder(tx, begun, isolation);
  const { failed } = isolation;
  isolation.inHand(works);
  const tried = await inSavepoint(tx, async () => {
    const [, applied] = await Promise.all([
      setPatience(tx, works.length === 1 ? ALONE : SEARCHING),
      applySome(tx, works, isolation),
    ]);
    return applied;
  });
  if ('done' in tried) return tried.done;
  const { fault, error } = tried;
  const signature = signatureOf(error);
  const times = signature === failed.signature ? failed.times + 1 : 1;
  const after = { ...isolation, failed: { times, signature } };
  if (works.length === 1) {
    if (fault === 'lasting' && times < TRIES) return applyIsolating(tx, works, after);
    return refuse(tx, works, { found: new Map([[works[0]!.object.id, reasonOf(error)]]), fault }, after);
  }
  if (fault === 'refused' && works.length <= TRIED_ALONE) {
    const refused = await refusedAlone(tx, works, isolation);
    if (refused.size > 0) return refuse(tx, works, { found: refused, fault }, after);
  }
  const parts = cutEvenly(works, Math.min(works.length, fault === 'lasting' ? PARTS_OF_SLOW : PARTS));
  for (const [first] of parts) isolation.starts.add(first!.object.id);
  return inOrder(tx, parts, after);
}

/** Applies what is left when these are condemned as well. */
async function refuse(
  tx: Connection,
  works: Work[],
  { found, fault }: { found: Condemned; fault: Fault },
  isolation: Isolation,
): Promise<Applied> {
  for (const work of works) {
    const reason = found.get(work.object.id);
    if (reason !== undefined) await isolation.found(work, reason, fault);
  }
  return applyIsolating(tx, works, {
    ...isolation,
    condemned: new Map([...isolation.condemned, ...found]),
  });
}

/** Until the time is over. */
async function inOrder(tx: Connection, parts: Work[][], isolation: Isolation): Promise<Applied> {
  const applied = nothingApplied();
  for (const part of parts) {
    const done = await applyIsolating(tx, part, isolation);
    addApplied(applied, done);
    if (done.count < part.length || performance.now() >= isolation.until) break;
  }
  return applied;
}

type Tried<Result> = { done: Result } | { error: unknown; fault: Fault };

/** @throws what is nobody's fault, and what has broken the connection: there is no way back to the savepoint */
async function inSavepoint<Result>(tx: Connection, work: () => Promise<Result>): Promise<Tried<Result>> {
  try {
    const [, done] = await Promise.all([tx.query('savepoint part'), work()]);
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
  works: Work[],
  { now, condemned }: Isolation,
): Promise<Condemned> {
  const asked = works.filter(({ object }) => !condemned.has(object.id));
  const loaded = await inSavepoint(tx, async () => {
    const loads = asked.map((work) => load(tx, [work], { now, condemned }));
    // None of them sends anything any more when the savepoint is gone.
    await Promise.allSettled(loads);
    return Promise.all(loads);
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
  for (const [index, work] of asked.entries()) {
    const { changes } = loaded.done[index]!;
    const note = (error: unknown) => {
      if (blameOf(error) === 'refused') refused.set(work.object.id, reasonOf(error));
    };
    const folded = await fold([work], changes, { condemned, until: Number.POSITIVE_INFINITY }).catch(note);
    // What is refused in memory needs no statement to find out.
    if (!folded || changes.refused.length > 0) continue;
    send('savepoint probe');
    probes.push(writeChanges(tx, changes, now).catch(note));
    send('rollback to savepoint probe');
    send('release savepoint probe');
  }
  await Promise.all(probes);
  return refused;
}

async function setPatience(tx: Connection, { statement, lock }: Limits): Promise<void> {
  await tx.query(`set local statement_timeout = ${statement}; set local lock_timeout = ${lock}`);
}

function cutAt(works: Work[], starts: ReadonlySet<string>): Work[][] {
  if (starts.size === 0) return [works];
  const parts: Work[][] = [];
  for (const [index, work] of works.entries()) {
    if (index === 0 || starts.has(work.object.id)) parts.push([work]);
    else parts.at(-1)!.push(work);
  }
  return parts;
}

/** In so many parts, which differ by one object at most. */
export function cutEvenly<One>(all: One[], parts: number): One[][] {
  return Array.from({ length: parts }, (_, part) =>
    all.slice(Math.floor((part * all.length) / parts), Math.floor(((part + 1) * all.length) / parts)),
  );
}
