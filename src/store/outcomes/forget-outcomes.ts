import type { Pool } from '../database.ts';

/** Reads the whole table, which holds a day of renames. */
const statement = "delete from outcomes where outcomes.decided_at < now() - interval '1 day'";

/** Removes outcomes that nobody waits for any more. */
export async function forgetOutcomes(pool: Pool): Promise<void> {
  await pool.query(statement);
}
