import { encodeTraces } from '../src/jobs/traces.ts';
import type { Log } from '../src/log.ts';
import { type Connection, type Pool, sendTogether } from '../src/store/database.ts';
import { insertDeadLetters } from '../src/store/dead-letters/insert-dead-letters.ts';
import { markReplayed } from '../src/store/dead-letters/mark-replayed.ts';
import { selectDeadLetters } from '../src/store/dead-letters/select-dead-letters.ts';
import { claimEnvelopes } from '../src/store/delivery/claim-envelopes.ts';
import { countLanes } from '../src/store/delivery/count-lanes.ts';
import { countUsage } from '../src/store/delivery/count-usage.ts';
import { inTransaction } from '../src/store/in-transaction.ts';
import { type Applied, applyObjects } from './apply.ts';
import { type Delivery, openEnvelope } from './contract.ts';
import { classify, type Outcome } from './outcome.ts';
import { recordRefused } from './refused.ts';
import { cutAtDeletes, type Opened } from './stretches.ts';
import { tallyLanes, tallyUsage } from './tally.ts';
import type { Work } from './track/work.ts';

type Apply = typeof applyObjects;

/**
 * The journey of the envelopes that a worker holds, from their lanes to COMMIT: open and check them, claim
 * them in the ledger, apply them, note dead letters and counts; all in one transaction.
 *
 * A permanent error blames one object: the batch is tried again in halves until it is found.
 * @throws a transient error; nothing has taken effect then, or all of it, and the ledger knows which
 */
export async function runBatch(pool: Pool, deliveries: Delivery[], log: Log): Promise<Outcome> {
  try {
    return await inTransaction(pool, (tx) => attempt(tx, deliveries, applyObjects));
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
  const { claimed, now } = await claimEnvelopes(
    tx,
    deliveries.map(({ id, envelope }) => ({ id, traces: encodeTraces(envelope) })),
  );
  const mine = deliveries.filter(({ id }) => claimed.has(id));
  if (mine.length === 0) return { kind: 'skipped' };

  const opened = open(mine);
  const applied: Work[] = [];
  const lost = new Set<string>();
  let removed = false;
  for (const stretch of cutAtDeletes(opened)) {
    if (opened.replayed.size > 0) await leaveOutForgotten(tx, stretch);
    const { works, parked } = stretch;
    if (parked.length > 0) await insertDeadLetters(tx, parked);
    const done = await apply(tx, works, now);
    for (const { id } of parked) lost.add(id);
    for (const { work } of done.refused) lost.add(work.object.id);
    for (const work of works) if (!lost.has(work.object.id)) applied.push(work);
    removed ||= done.removed;
  }
  const done =
    opened.replayed.size === 0
      ? []
      : applied.flatMap(({ object: { id } }) => (opened.replayed.has(id) ? [id] : []));
  const seconds = (performance.now() - started) / 1000;
  const usage = tallyUsage(applied);
  await sendTogether(tx, [
    () => done.length > 0 && markReplayed(tx, done),
    () => usage.length > 0 && countUsage(tx, usage),
    () => countLanes(tx, tallyLanes(mine, applied, lost.size, seconds)),
  ]);
  return { kind: 'applied', objects: applied.length, deadLetters: [...lost], removed, seconds };
}

/** Every object of the envelopes, in order. */
function open(deliveries: Delivery[]): Opened {
  const opened: Opened = { works: [], parked: [], replayed: new Set() };
  const { works, parked, replayed } = opened;
  for (const delivery of deliveries) {
    const [firstWork, firstParked] = [works.length, parked.length];
    openEnvelope(delivery, works, parked);
    if (!delivery.envelope?.replay) continue;
    for (const { object } of works.slice(firstWork)) replayed.add(object.id);
    // Each dead letter is replayed in an envelope of its own. What else may be in one was never a dead letter.
    const [alone, ...more] = parked.slice(firstParked);
    if (alone && more.length === 0 && (alone.object as { id?: unknown } | null)?.id === alone.id) {
      replayed.add(alone.id);
    }
  }
  return opened;
}

/** A dead letter that a delete took away while its replay was on its way has no effect any more. */
async function leaveOutForgotten(tx: Connection, stretch: Opened): Promise<void> {
  const { works, parked, replayed } = stretch;
  const ids = [...works.map(({ object }) => object.id), ...parked.map(({ id }) => id)];
  const asked = ids.filter((id) => replayed.has(id));
  const kept = new Set((await selectDeadLetters(tx, asked)).map(({ id }) => id));
  const forgotten = new Set(asked.filter((id) => !kept.has(id)));
  if (forgotten.size === 0) return;
  stretch.works = works.filter(({ object }) => !forgotten.has(object.id));
  stretch.parked = parked.filter(({ id }) => !forgotten.has(id));
}

/** Applies in halves, each in a savepoint, in order; what fails alone is what cannot be applied. */
async function applyIsolating(tx: Connection, works: Work[], now: Date): Promise<Applied> {
  if (works.length === 0) return { refused: [], removed: false };
  await tx.query('savepoint half');
  try {
    const applied = await applyObjects(tx, works, now);
    await tx.query('release savepoint half');
    return applied;
  } catch (error) {
    if (classify(error) === 'transient') throw error;
    await tx.query('rollback to savepoint half');
    await tx.query('release savepoint half');
    if (works.length === 1) {
      const refused = [{ work: works[0]!, reason: (error as Error).message }];
      await recordRefused(tx, refused);
      return { refused, removed: false };
    }
    const middle = works.length >> 1;
    const first = await applyIsolating(tx, works.slice(0, middle), now);
    const second = await applyIsolating(tx, works.slice(middle), now);
    return {
      refused: [...first.refused, ...second.refused],
      removed: first.removed || second.removed,
    };
  }
}
