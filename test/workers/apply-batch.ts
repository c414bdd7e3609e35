import type { Log } from '../../src/platform/log.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { causeOf } from '../../src/store/error-cause.ts';
import { type Applied, applySome } from '../../workers/batch/apply.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { type BatchResult, type Part, WHOLE } from '../../workers/batch/parts.ts';
import { applyTogether, HOLDS_ONE } from '../../workers/batch/run-batch.ts';
import { applyBisecting, type Suspicion } from '../../workers/batch/settle-alone.ts';
import type { WorkItem } from '../../workers/batch/work-item.ts';

/** Applies a whole batch, by bisection if Postgres refuses an object. A scheduler reaches the same result. */
export function applyBatch(pool: Pool, deliveries: Delivery[], log: Log): Promise<BatchResult> {
  return applyPart(pool, deliveries, { log, part: WHOLE });
}

/** Applies a part of a batch in the same way. */
export async function applyPart(
  pool: Pool,
  deliveries: Delivery[],
  { log, part }: { log: Log; part: Part },
): Promise<BatchResult> {
  try {
    return await applyTogether(pool, deliveries, part);
  } catch (error) {
    if (causeOf(error) !== 'object') throw error;
    log.warn({ err: error, envelopes: deliveries.map(({ id }) => id) }, HOLDS_ONE);
    const ended = await applyBisecting(pool, deliveries, { suspicion: noSuspicion(), part });
    if (ended.how === 'failed') throw ended.error;
    return ended.result;
  }
}

/** Returns the suspicion for objects that have failed once, without further knowledge. */
function noSuspicion(): Suspicion {
  return {
    poison: new Map(),
    starts: new Set(),
    failed: { times: 0, signature: undefined },
    async found() {},
  };
}

/** Applies all objects in an open transaction, in as many rounds as they need. */
export function applyObjects(tx: Connection, items: WorkItem[], now: string): Promise<Applied> {
  return applySome(tx, items, { now, until: Number.POSITIVE_INFINITY, poison: new Map() });
}
