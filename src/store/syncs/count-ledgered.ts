import type { Pool } from '../database.ts';

/** By primary key. */
const statement = `
  select count(*)::integer as envelopes
  from ledger
  where ledger.envelope_id = any($1::uuid[])`;

/** How many of the envelopes have taken effect. */
export async function countLedgered(pool: Pool, envelopeIds: string[]): Promise<number> {
  const { rows } = await pool.query<{ envelopes: number }>({
    name: 'count-ledgered',
    text: statement,
    values: [envelopeIds],
  });
  return rows[0]!.envelopes;
}
