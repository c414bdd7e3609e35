import type { Pool } from '../database.ts';

/** A scan; the table holds hardly more than the fences at which a lane waits now. */
const statement = `
  delete from fence_arrivals where fence_arrivals.arrived_at < now() - interval '1 day'`;

/**
 * Forgets arrivals that came too late for their fence, or whose worker died. One of a lane that still waits after a
 * day is announced again within a moment.
 */
export async function forgetArrivals(pool: Pool): Promise<void> {
  await pool.query(statement);
}
