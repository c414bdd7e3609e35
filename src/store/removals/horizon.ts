import type { Pool } from '../database.ts';

/**
 * An id of its own, later than all that were given out. A snapshot's xmax is not: it follows the last transaction
 * that has ended, and one that is under way may lie beyond it.
 */
const newest = 'select pg_current_xact_id()::text as horizon';
const passed = 'select pg_snapshot_xmin(pg_current_snapshot()) >= $1::xid8 as passed';

/** A point that every transaction which has an id now lies before. */
export async function readHorizon(pool: Pool): Promise<string> {
  const { rows } = await pool.query<{ horizon: string }>({ name: 'read-horizon', text: newest });
  return rows[0]!.horizon;
}

/** Whether every transaction before the horizon has ended. */
export async function isPassed(pool: Pool, horizon: string): Promise<boolean> {
  const { rows } = await pool.query<{ passed: boolean }>({
    name: 'is-horizon-passed',
    text: passed,
    values: [horizon],
  });
  return rows[0]!.passed;
}
