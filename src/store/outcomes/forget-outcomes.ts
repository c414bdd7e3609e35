import type { Pool } from '../database.ts';

/** By a range of the primary key: an object's id is a UUIDv7, and older than its outcome. */
const statement = `
  delete from outcomes
  where outcomes.object_id < uuid_v7_floor(now() - interval '1 day')
    and outcomes.decided_at < now() - interval '1 day'`;

/** Removes outcomes that nobody waits for any more. */
export async function forgetOutcomes(pool: Pool): Promise<void> {
  await pool.query(statement);
}
