import type { Connection } from '../database.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/**
 * One row a merge: from now on the events and purchases of the merged profile are the kept one's, wherever they
 * lie. The second row asks for a look at what comes late.
 */
const statement = `
  with moved as (
    insert into merged_profiles (workspace_id, profile_id, kept_id, merged_at)
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id, $4::timestamptz
    from ${pairsTable}
  )
  insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
  select pairs.workspace_id, pairs.merged_id, 'merged', $4::timestamptz
  from ${pairsTable}`;

export async function recordMerges(tx: Connection, pairs: MergePair[], now: Date): Promise<void> {
  await tx.query({ name: 'record-merges', text: statement, values: [...pairValues(pairs), now] });
}
