import type { Pool } from '../database.ts';
import { isKey, isOpen, type Key, primaryKeyOf } from './key.ts';

/** By primary key. Of several at once, one takes it. */
const statement = `
  update idempotency_keys
  set lease_until = clock_timestamp() + make_interval(secs => $5::float8 / 1000)
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}
    and idempotency_keys.lease_until <= clock_timestamp()
  returning 1`;

/** Goes on, for so many milliseconds, with what somebody began and did not end. @returns false when another does */
export async function takeLease(pool: Pool, key: Key, requestId: string, lease: number): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'take-lease',
    text: statement,
    values: [...primaryKeyOf(key), requestId, lease],
  });
  return rowCount === 1;
}
