import type { Pool } from '../database.ts';
import { isKey, type Key, primaryKeyOf } from './key.ts';

/** By primary key. */
const statement = `
  delete from idempotency_keys
  where ${isKey} and idempotency_keys.request_id = $4::uuid and idempotency_keys.status is null`;

/** Forgets the key of a request that was refused for what it asks: it had no effect. */
export async function forgetRefused(pool: Pool, key: Key, requestId: string): Promise<void> {
  await pool.query({ name: 'forget-refused', text: statement, values: [...primaryKeyOf(key), requestId] });
}
