import type { Json } from '../../profile/json.ts';
import type { Pool } from '../database.ts';
import { type FoundKey, isKey, KEPT, type Key, primaryKeyOf } from './key.ts';

/** By primary key; locks nothing. An answer without a body has none here, and null is a body. */
const statement = `
  select
    idempotency_keys.fingerprint,
    idempotency_keys.request_id as "requestId",
    idempotency_keys.staged,
    idempotency_keys.status,
    idempotency_keys.body::text as body,
    idempotency_keys.headers,
    coalesce(idempotency_keys.lease_until > clock_timestamp(), false) as leased
  from idempotency_keys
  where ${isKey} and idempotency_keys.created_at > now() - ${KEPT}`;

interface Row extends Pick<FoundKey, 'fingerprint' | 'requestId' | 'leased'> {
  staged: unknown;
  status: number | null;
  body: string | null;
  headers: Record<string, string> | null;
}

/** What the last 24 hours know of the key. */
export async function findKey(pool: Pool, key: Key): Promise<FoundKey | undefined> {
  const { rows } = await pool.query<Row>({
    name: 'find-key',
    text: statement,
    values: primaryKeyOf(key),
  });
  const [row] = rows;
  if (!row) return undefined;
  const { status, body, headers, staged: entries, ...found } = row;
  if (status === null) return found;
  const answer = {
    status,
    body: body === null ? undefined : (JSON.parse(body) as Json),
    ...(headers && { headers }),
  };
  return entries === null ? { ...found, answer } : { ...found, staged: { entries, answer } };
}
