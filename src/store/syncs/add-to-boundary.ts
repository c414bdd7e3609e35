import type { Connection } from '../database.ts';

/** Upserts by primary key, in the order of it. */
const statement = `
  insert into sync_boundary (integration_id, fingerprint, seen, unreadable)
  select $1::uuid, decode(met.fingerprint, 'hex'), met.seen, $4::boolean
  from unnest($2::text[], $3::integer[]) as met (fingerprint, seen)
  order by met.fingerprint
  on conflict (integration_id, fingerprint) do update set seen = sync_boundary.seen + excluded.seen`;

/**
 * Remembers rows that have been processed.
 * @param rows how many equal ones, by fingerprint in hex
 */
export async function addToBoundary(
  tx: Connection,
  integrationId: string,
  rows: Record<string, number>,
  unreadable: boolean,
): Promise<void> {
  await tx.query({
    name: 'add-to-boundary',
    text: statement,
    values: [integrationId, Object.keys(rows), Object.values(rows), unreadable],
  });
}
