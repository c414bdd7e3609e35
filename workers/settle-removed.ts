import { type Connection, type Pool, sendTogether } from '../src/store/database.ts';
import { eraseSummaries } from '../src/store/identity/erase-summaries.ts';
import { mergeEventSummaries } from '../src/store/identity/merge-event-summaries.ts';
import { mergePurchaseSummaries } from '../src/store/identity/merge-purchase-summaries.ts';
import type { ProfileKey } from '../src/store/identity/pair.ts';
import { inTransaction } from '../src/store/in-transaction.ts';
import { eraseActivity } from '../src/store/removals/erase-activity.ts';
import { findKept } from '../src/store/removals/find-kept.ts';
import { finishRemovals } from '../src/store/removals/finish-removals.ts';
import { lockRemoved } from '../src/store/removals/lock-removed.ts';
import type { RemovedProfile } from '../src/store/removals/removed-profile.ts';

/** Rows erased in one transaction: about 50 ms, and as short a lock. */
const SLICE = 5000;

/**
 * One step for removed profiles: what came late for the merged ones goes where they went, and a slice of what the
 * deleted ones did is erased. Any number of workers may do it at once.
 *
 * @returns false when other workers have all of them in hand
 */
export async function settleRemoved(pool: Pool, keys: ProfileKey[]): Promise<boolean> {
  return inTransaction(pool, async (tx) => {
    const removed = await lockRemoved(tx, keys);
    const merged = removed.filter(({ fate }) => fate === 'merged');
    const deleted = removed.filter(({ fate }) => fate === 'deleted');
    if (merged.length > 0) await bringAfter(tx, merged);
    if (deleted.length > 0) await eraseSlice(tx, deleted);
    return removed.length > 0;
  });
}

async function bringAfter(tx: Connection, merged: RemovedProfile[]): Promise<void> {
  const pairs = await findKept(tx, merged);
  await sendTogether(tx, [
    () => pairs.length > 0 && mergeEventSummaries(tx, pairs),
    () => pairs.length > 0 && mergePurchaseSummaries(tx, pairs),
    () => finishRemovals(tx, merged, 'merged'),
  ]);
}

async function eraseSlice(tx: Connection, deleted: RemovedProfile[]): Promise<void> {
  if ((await eraseActivity(tx, 'events', deleted, SLICE)) === SLICE) return;
  if ((await eraseActivity(tx, 'purchases', deleted, SLICE)) === SLICE) return;
  // Those that came late; the others went with the profile.
  await eraseSummaries(tx, deleted);
  await finishRemovals(tx, deleted, 'deleted');
}
