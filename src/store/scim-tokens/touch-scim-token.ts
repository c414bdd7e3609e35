import type { Pool } from '../database.ts';

/** By primary key. */
const statement = `
  update scim_tokens
  set last_seen_at = greatest(scim_tokens.last_seen_at, $2::timestamptz)
  where scim_tokens.id = $1::uuid`;

/** Notes when a token was last used. */
export async function touchScimToken(pool: Pool, id: string, at: Date): Promise<void> {
  await pool.query({ name: 'touch-scim-token', text: statement, values: [id, at] });
}
