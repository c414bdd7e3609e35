import type { Pool } from '../database.ts';

/**
 * By two ranges of the ledger's primary key, whatever lies between them: envelope ids are UUIDv7 and begin with their
 * time. Those of replays are not: they are few, and of 100,000 one lies before tomorrow and not yet in the first range,
 * which comes to it. What a sync has handed to the lanes and not accounted for yet stays, however long that takes: it
 * will be handed over again.
 */
const statement = `
  delete from ledger
  where ledger.envelope_id in (
    select old.envelope_id
    from (
      select ledger.envelope_id, ledger.applied_at
      from ledger
      where ledger.envelope_id < uuid_v7_floor(now() - make_interval(days => $1::integer))
      union all
      select ledger.envelope_id, ledger.applied_at
      from ledger
      where ledger.envelope_id > uuid_v7_floor(now() + interval '1 day')
    ) as old
    where old.applied_at < now() - make_interval(days => $1::integer)
      and old.envelope_id not in (select unnest(sync_chunks.envelope_ids) from sync_chunks)
    limit 50000)`;

/** Forgets envelopes that were applied more than `days` ago, 50,000 at a time. */
export async function forgetEnvelopes(pool: Pool, days: number): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(statement, [days]));
  } while (deleted === 50_000);
}
