import type { Pool } from '../database.ts';
import { KEPT } from './key.ts';

/** Rows in one transaction: one may hold a request of 4 MB. */
const SLICE = 1000;

/** By the index on the time. What another worker is deleting is left to it. */
const statement = `
  delete from idempotency_keys
  where (owner_id, operation, key_hash) in (
    select old.owner_id, old.operation, old.key_hash
    from idempotency_keys as old
    where old.created_at <= now() - ${KEPT}
    limit ${SLICE}
    for update skip locked)`;

/** Forgets the keys of the day before, a slice at a time. */
export async function forgetKeys(pool: Pool): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(statement));
  } while (deleted === SLICE);
}
