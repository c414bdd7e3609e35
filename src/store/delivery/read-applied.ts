import type { Pool } from '../database.ts';

/** By primary key; locks nothing. */
const statement = `
  select ledger.envelope_id::text as id
  from ledger
  where ledger.envelope_id = any($1::uuid[])`;

/** Those of the envelopes that have taken effect by now. */
export async function readApplied(pool: Pool, ids: string[]): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>({ name: 'read-applied', text: statement, values: [ids] });
  return new Set(rows.map(({ id }) => id));
}
