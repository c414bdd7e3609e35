import type { Pool } from '../database.ts';

/** Makes this month's partitions and those of the two that follow, if they are not there. */
export async function ensurePartitions(pool: Pool): Promise<void> {
  await pool.query('select ensure_month_partitions(now(), 2)');
}
