import type { Pool } from '../database.ts';
import { type Beginning, KEPT, type Key, primaryKeyOf } from './key.ts';

/**
 * By primary key. Of several at once, one inserts and the others wait for its commit; a row that is older than keys
 * are remembered counts as none.
 */
const statement = `
  insert into idempotency_keys
    (owner_id, operation, key_hash, fingerprint, request_id, lease_until, staged, status, body, headers)
  values
    ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6::float8 / 1000), $7, $8, $9, $10)
  on conflict (owner_id, operation, key_hash) do update set
    fingerprint = excluded.fingerprint,
    request_id = excluded.request_id,
    created_at = excluded.created_at,
    lease_until = excluded.lease_until,
    staged = excluded.staged,
    status = excluded.status,
    body = excluded.body,
    headers = excluded.headers
  where idempotency_keys.created_at <= now() - ${KEPT}
  returning 1`;

/**
 * Writes down what a request is about to do.
 *
 * @param lease milliseconds for which nobody else goes on with it; undefined: it has no effect that could be had twice
 * @returns false when the key is known already
 */
export async function insertKeyIfAbsent(
  pool: Pool,
  key: Key,
  { requestId, staged }: Beginning,
  lease: number | undefined,
): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'insert-key',
    text: statement,
    values: [
      ...primaryKeyOf(key),
      key.fingerprint,
      requestId,
      lease ?? null,
      staged ? JSON.stringify(staged.entries) : null,
      staged?.answer.status ?? null,
      staged?.answer.body === undefined ? null : JSON.stringify(staged.answer.body),
      staged?.answer.headers ? JSON.stringify(staged.answer.headers) : null,
    ],
  });
  return rowCount === 1;
}
