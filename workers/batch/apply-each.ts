import type { Connection } from '../../src/store/database.ts';
import { answersTo } from '../../src/store/transactions.ts';
import { type Applied, applySome, joinApplied, type Terms } from './apply.ts';
import { blameOf, reasonOf } from './failures.ts';
import type { WorkItem } from './work-item.ts';

/**
 * Applies objects in order, each in a savepoint, until the time is over. An object that Postgres refuses becomes a dead
 * letter; the others take effect.
 *
 * @throws any other error; the transaction can then only be rolled back
 */
export async function applyEach(tx: Connection, items: WorkItem[], terms: Terms): Promise<Applied> {
  const all: Applied[] = [];
  for (const item of items) {
    if (all.length > 0 && performance.now() >= terms.until) break;
    all.push(await applyOne(tx, item, terms));
  }
  return joinApplied(all);
}

async function applyOne(tx: Connection, item: WorkItem, terms: Terms): Promise<Applied> {
  try {
    const [, applied] = await answersTo([tx.query('savepoint object'), applySome(tx, [item], terms)]);
    await tx.query('release savepoint object');
    return applied;
  } catch (error) {
    if (blameOf(error) !== 'refused') throw error;
    const poison = new Map([...terms.poison, [item.object.id, reasonOf(error)]]);
    const [, , refused] = await answersTo([
      tx.query('rollback to savepoint object'),
      tx.query('release savepoint object'),
      applySome(tx, [item], { ...terms, poison }),
    ]);
    return refused;
  }
}
