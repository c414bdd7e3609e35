import type { Pool } from '../database.ts';

/** By primary keys. */
const statement = `
  select
    exists (select from ledger where ledger.envelope_id = $1::uuid) as passed,
    array(select fence_arrivals.lane from fence_arrivals where fence_arrivals.fence_id = $1::uuid) as arrived`;

export interface FenceState {
  /** Its objects have taken effect. */
  passed: boolean;
  /** Lanes that have come to it and said so in the store. */
  arrived: number[];
}

export async function readFence(pool: Pool, fence: string): Promise<FenceState> {
  const { rows } = await pool.query<FenceState>({ name: 'read-fence', text: statement, values: [fence] });
  return rows[0]!;
}
