import { idBytes } from '../../jobs/traces.ts';
import type { Pool } from '../database.ts';

/** By a range of the primary key: envelope ids begin with their time. Locks nothing. */
const statement = `
  select ledger.envelope_id as "envelopeId", ledger.requests as traces
  from ledger
  where ledger.envelope_id between $1::uuid and $2::uuid and position($3::bytea in ledger.requests) > 0`;

/** The applied envelopes with ids of the range that say anything of the request. */
export async function findTraces(
  pool: Pool,
  requestId: string,
  [from, to]: [string, string],
): Promise<{ envelopeId: string; traces: Buffer }[]> {
  const { rows } = await pool.query({
    name: 'find-traces',
    text: statement,
    values: [from, to, idBytes(requestId)],
  });
  return rows;
}
