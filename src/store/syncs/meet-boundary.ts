import type { Pool } from '../database.ts';

/** By primary key. One process reads in an attempt, one batch after the other: no two count the same row down. */
const statement = `
  with met as (
    select sync_expected.fingerprint, least(sync_expected.remaining, asked.rows) as rows
    from unnest($2::text[], $3::integer[]) as asked (fingerprint, rows)
    join sync_expected
      on sync_expected.attempt = $1::uuid
      and sync_expected.fingerprint = decode(asked.fingerprint, 'hex')
    where sync_expected.remaining > 0
  ), counted as (
    update sync_expected
    set remaining = sync_expected.remaining - met.rows
    from met
    where sync_expected.attempt = $1::uuid
      and sync_expected.fingerprint = met.fingerprint
  )
  select encode(met.fingerprint, 'hex') as fingerprint, met.rows from met`;

/**
 * Of rows that an attempt has read, how many of each have been processed before; these it has met then.
 * @param rows how many equal ones, by fingerprint in hex
 */
export async function meetBoundary(
  pool: Pool,
  attempt: string,
  rows: ReadonlyMap<string, number>,
): Promise<Map<string, number>> {
  const { rows: met } = await pool.query<{ fingerprint: string; rows: number }>({
    name: 'meet-boundary',
    text: statement,
    values: [attempt, [...rows.keys()], [...rows.values()]],
  });
  return new Map(met.map(({ fingerprint, rows }) => [fingerprint, rows]));
}
