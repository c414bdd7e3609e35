import type { Pool } from '../database.ts';

/**
 * By a scan of the ledger's primary key from its start: envelope ids are UUIDv7, so the oldest come first.
 * The ids of replays are not, and are found by their time; those are few. What a sync has handed to the lanes and not
 * accounted for yet stays, however long that takes: it will be handed over again.
 */
const statement = `
  delete from ledger
  where ledger.envelope_id in (
    select old.envelope_id
    from ledger as old
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
