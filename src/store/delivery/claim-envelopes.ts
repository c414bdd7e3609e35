import type { Connection } from '../database.ts';

/**
 * One row per envelope by primary key. Waits for another transaction that claims the same envelope, and then
 * does not return it. Ids are sorted by the caller: two workers claim in one order.
 */
const statement = `
  with claimed as (
    insert into ledger (envelope_id, requests)
    select given.envelope_id, given.requests
    from unnest($1::uuid[], $2::bytea[]) as given (envelope_id, requests)
    on conflict (envelope_id) do nothing
    returning ledger.envelope_id
  )
  select
    coalesce((select array_agg(claimed.envelope_id::text) from claimed), '{}') as ids,
    clock_timestamp() as now`;

/**
 * Claims envelopes for the open transaction: those returned were never applied, and are once it commits.
 * `traces` are kept with them: which requests they carry.
 * `now` is the store's clock, the only one that orders what several workers write.
 */
export async function claimEnvelopes(
  tx: Connection,
  envelopes: { id: string; traces: Buffer | undefined }[],
): Promise<{ claimed: Set<string>; now: Date }> {
  const sorted = [...envelopes].sort((one, other) => (one.id < other.id ? -1 : 1));
  const { rows } = await tx.query<{ ids: string[]; now: Date }>({
    name: 'claim-envelopes',
    text: statement,
    values: [sorted.map(({ id }) => id), sorted.map(({ traces }) => traces ?? null)],
  });
  return { claimed: new Set(rows[0]!.ids), now: rows[0]!.now };
}
