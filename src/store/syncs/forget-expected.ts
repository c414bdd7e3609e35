import type { Pool } from '../database.ts';

/** By the first column of the primary key. */
const statement = 'delete from sync_expected where sync_expected.attempt = $1::uuid';

/** Forgets what an attempt has noted, which reads no more. That of another attempt at the same run is not its own. */
export async function forgetExpected(pool: Pool, attempt: string): Promise<void> {
  await pool.query({ name: 'forget-expected', text: statement, values: [attempt] });
}
