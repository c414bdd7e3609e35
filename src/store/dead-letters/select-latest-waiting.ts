import type { Pool } from '../database.ts';

// Reads the partial index dead_letters_waiting from its end: nothing to read while no dead letter waits.
const statement = `
select dead_letters.id, dead_letters.replays
  from dead_letters
 where dead_letters.state = 'waiting'
 order by dead_letters.id desc
 limit $1`;

/** The dead letters that wait, the latest accepted first, `limit` at most. */
export async function selectLatestWaiting(
  pool: Pool,
  limit: number,
): Promise<{ id: string; replays: number }[]> {
  const { rows } = await pool.query({ name: 'select-latest-waiting', text: statement, values: [limit] });
  return rows;
}
