import type { Pool } from '../database.ts';
import { isKey, isOpen, type Key, primaryKeyOf } from './key.ts';

/** By primary key. */
const statement = `
  update idempotency_keys
  set lease_until = clock_timestamp()
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}`;

/** Lets whoever comes next go on at once. */
export async function endLease(pool: Pool, key: Key, requestId: string): Promise<void> {
  await pool.query({ name: 'end-lease', text: statement, values: [...primaryKeyOf(key), requestId] });
}
