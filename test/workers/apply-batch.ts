import type { Connection, Pool } from '../../src/store/database.ts';
import { causeOf } from '../../src/store/error-cause.ts';
import { type Applied, applySome } from '../../workers/batch/apply.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { type BatchResult, type Part, WHOLE } from '../../workers/batch/parts.ts';
import { runBatch } from '../../workers/batch/run-batch.ts';
import type { WorkItem } from '../../workers/batch/work-item.ts';

/**
 * Applies a whole batch. If Postgres refuses an object, each object gets a savepoint. A scheduler reaches the same
 * result.
 */
export async function applyBatch(
  pool: Pool,
  deliveries: Delivery[],
  part: Part = WHOLE,
): Promise<BatchResult> {
  try {
    return await runBatch(pool, deliveries, part);
  } catch (error) {
    if (causeOf(error) !== 'object') throw error;
    return runBatch(pool, deliveries, { ...part, hasSavepoints: true });
  }
}

/** Applies all objects in an open transaction, in as many rounds as they need. */
export function applyObjects(tx: Connection, items: WorkItem[], now: string): Promise<Applied> {
  return applySome(tx, items, { now, until: Number.POSITIVE_INFINITY, poison: new Map() });
}
