import type { Log } from '../src/log.ts';
import { type Connection, type Pool, sendTogether } from '../src/store/database.ts';
import { type FailedObject, insertDeadLetters } from '../src/store/dead-letters/insert-dead-letters.ts';
import { markReplayed } from '../src/store/dead-letters/mark-replayed.ts';
import { claimEnvelopes } from '../src/store/delivery/claim-envelopes.ts';
import { countLanes } from '../src/store/delivery/count-lanes.ts';
import { countUsage } from '../src/store/delivery/count-usage.ts';
import { type Delivery, openEnvelope, toFailed } from './contract.ts';
import { classify, type Outcome } from './outcome.ts';
import { tallyLanes, tallyUsage } from './tally.ts';
import type { Work } from './track/work.ts';
import { applyTrack } from './track.ts';

/** Applies the works within the open transaction, and returns what could not be applied. */
type Apply = (tx: Connection, works: Work[], now: Date) => Promise<FailedObject[]>;

/**
 * The journey of the envelopes that a worker holds, from their lanes to COMMIT: open and check them, claim
 * them in the ledger, apply them, note dead letters and counts; all in one transaction.
 *
 * A permanent error blames one object: the batch is tried again in halves until it is found.
 * @throws a transient error; nothing has taken effect then, or all of it, and the ledger knows which
 */
export async function runBatch(pool: Pool, deliveries: Delivery[], log: Log): Promise<Outcome> {
  try {
    return await inTransaction(pool, (tx) => attempt(tx, deliveries, applyWhole));
  } catch (error) {
    if (classify(error) === 'transient') throw error;
    log.warn(
      { err: error, envelopes: deliveries.map(({ id }) => id) },
      'a batch holds an object that cannot be applied',
    );
    return await inTransaction(pool, (tx) => attempt(tx, deliveries, applyIsolating));
  }
}

async function attempt(tx: Connection, deliveries: Delivery[], apply: Apply): Promise<Outcome> {
  const started = performance.now();
  const ids = deliveries.map(({ id }) => id);
  const { claimed, now } = await claimEnvelopes(tx, ids);
  const mine = deliveries.filter(({ id }) => claimed.has(id));
  if (mine.length === 0) return { kind: 'skipped' };

  const works: Work[] = [];
  const failed: FailedObject[] = [];
  const replayed: string[] = [];
  for (const delivery of mine) {
    const opened = works.length;
    openEnvelope(delivery, works, failed);
    if (delivery.envelope?.replay) replayed.push(...works.slice(opened).map(({ object }) => object.id));
  }
  const parked = failed.length;
  failed.push(...(await apply(tx, works, now)));

  const refused = new Set(failed.slice(parked).map(({ id }) => id));
  const applied = refused.size === 0 ? works : works.filter(({ object }) => !refused.has(object.id));
  const lost = new Set(failed.map(({ id }) => id));
  const done = replayed.filter((id) => !lost.has(id));
  const seconds = (performance.now() - started) / 1000;
  const usage = tallyUsage(applied);
  await sendTogether(tx, [
    () => failed.length > 0 && insertDeadLetters(tx, failed),
    () => done.length > 0 && markReplayed(tx, done),
    () => usage.length > 0 && countUsage(tx, usage),
    () => countLanes(tx, tallyLanes(mine, applied, failed.length, seconds)),
  ]);
  return { kind: 'applied', objects: applied.length, deadLetters: [...lost], seconds };
}

async function applyWhole(tx: Connection, works: Work[], now: Date): Promise<FailedObject[]> {
  const refused = await applyTrack(tx, works, now);
  return refused.map(({ work, reason }) => toFailed({ ...work, id: work.object.id }, reason));
}

/** Applies in halves, each in a savepoint, in order; what fails alone is what cannot be applied. */
async function applyIsolating(tx: Connection, works: Work[], now: Date): Promise<FailedObject[]> {
  if (works.length === 0) return [];
  await tx.query('savepoint half');
  try {
    const failed = await applyWhole(tx, works, now);
    await tx.query('release savepoint half');
    return failed;
  } catch (error) {
    if (classify(error) === 'transient') throw error;
    await tx.query('rollback to savepoint half');
    await tx.query('release savepoint half');
    const work = works[0]!;
    if (works.length === 1) return [toFailed({ ...work, id: work.object.id }, (error as Error).message)];
    const middle = works.length >> 1;
    const first = await applyIsolating(tx, works.slice(0, middle), now);
    return [...first, ...(await applyIsolating(tx, works.slice(middle), now))];
  }
}

/** Commits what `work` does, or nothing of it. A connection that failed is not used again. */
async function inTransaction<T>(pool: Pool, work: (tx: Connection) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  let broken: Error | undefined;
  // While it is checked out, the connection's own errors have no other listener, and would end the process.
  const onError = (error: Error) => {
    broken = error;
  };
  tx.on('error', onError);
  try {
    await tx.query('begin');
    const result = await work(tx);
    await tx.query('commit');
    return result;
  } catch (error) {
    await tx.query('rollback').catch((failure: Error) => {
      broken = failure;
    });
    throw error;
  } finally {
    tx.off('error', onError);
    tx.release(broken);
  }
}
