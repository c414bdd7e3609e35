import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from './pair.ts';

/** By primary key. */
const statement = `
  with wanted as (
    select * from ${keysTable}
  ), events_gone as (
    delete from event_summaries using wanted
    where event_summaries.workspace_id = wanted.workspace_id and event_summaries.profile_id = wanted.id
  )
  delete from purchase_summaries using wanted
  where purchase_summaries.workspace_id = wanted.workspace_id and purchase_summaries.profile_id = wanted.id`;

/** Erases the sums of what profiles have done. */
export async function eraseSummaries(tx: Connection, keys: ProfileKey[]): Promise<void> {
  await tx.query({ name: 'erase-summaries', text: statement, values: keyValues(keys) });
}
