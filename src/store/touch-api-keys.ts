import type { Pool } from './database.ts';

/** By primary key; the array is sorted, so that two edges lock the rows in one order. */
const statement = `
  update api_keys
  set last_seen_at = seen.at
  from unnest($1::uuid[], $2::timestamptz[]) as seen (id, at)
  where api_keys.id = seen.id
    and (api_keys.last_seen_at is null or api_keys.last_seen_at < seen.at)`;

/** Notes when keys were last used. */
export async function touchApiKeys(pool: Pool, seen: Map<string, Date>): Promise<void> {
  const ids = [...seen.keys()].sort();
  await pool.query({ name: 'touch-api-keys', text: statement, values: [ids, ids.map((id) => seen.get(id))] });
}
