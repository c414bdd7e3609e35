import type { Pool } from '../database.ts';

export interface Totals {
  envelopes: number;
  /** Those that took effect. */
  objects: number;
  /** Attempts that ended as a dead letter, replays included. */
  deadLetters: number;
  applySeconds: number;
  /** Dead letters that wait for a person now. */
  waitingDeadLetters: number;
}

/** One row per lane, and a partial index of the waiting dead letters. */
const statement = `
  select
    coalesce(sum(lane_totals.envelopes), 0)::float8 as envelopes,
    coalesce(sum(lane_totals.objects), 0)::float8 as objects,
    coalesce(sum(lane_totals.dead_letters), 0)::float8 as "deadLetters",
    coalesce(sum(lane_totals.apply_seconds), 0) as "applySeconds",
    (select count(*)::float8 from dead_letters where dead_letters.state = 'waiting') as "waitingDeadLetters"
  from lane_totals`;

/** What the whole fleet has applied since the installation was made. */
export async function readTotals(pool: Pool): Promise<Totals> {
  const { rows } = await pool.query<Totals>({ name: 'read-totals', text: statement });
  return rows[0]!;
}
