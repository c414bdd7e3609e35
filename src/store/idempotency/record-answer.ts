import type { Pool } from '../database.ts';
import { isKey, isOpen, type KeptAnswer, type Key, primaryKeyOf } from './key.ts';

/** By primary key. Of several at once the first is recorded; what was staged has done its duty. */
const statement = `
  update idempotency_keys
  set status = $5, body = $6, headers = $7, staged = null, lease_until = null
  where ${isKey} and idempotency_keys.request_id = $4::uuid and ${isOpen}
  returning 1`;

/** Writes down the answer that everyone gets. @returns false when there is one already */
export async function recordAnswer(
  pool: Pool,
  key: Key,
  requestId: string,
  { status, body, headers }: KeptAnswer,
): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'record-answer',
    text: statement,
    values: [
      ...primaryKeyOf(key),
      requestId,
      status,
      body === undefined ? null : JSON.stringify(body),
      headers ? JSON.stringify(headers) : null,
    ],
  });
  return rowCount === 1;
}
