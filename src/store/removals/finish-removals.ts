import type { Connection } from '../database.ts';
import { keysTable, keyValues } from '../identity/pair.ts';
import type { RemovedProfile } from './removed-profile.ts';

/** By primary key. What a merged profile did stays its keeper's by reference; of a deleted one nothing stays. */
const statement = `
  with wanted as (
    select * from ${keysTable}
  ), references_gone as (
    delete from merged_profiles using wanted
    where merged_profiles.workspace_id = wanted.workspace_id
      and merged_profiles.profile_id = wanted.id
      and $3
  )
  delete from removed_profiles using wanted
  where removed_profiles.workspace_id = wanted.workspace_id
    and removed_profiles.profile_id = wanted.id`;

/** Strikes removed profiles, all of one fate, off the list of what is left to do. */
export async function finishRemovals(
  tx: Connection,
  removed: RemovedProfile[],
  fate: RemovedProfile['fate'],
): Promise<void> {
  await tx.query({
    name: 'finish-removals',
    text: statement,
    values: [...keyValues(removed), fate === 'deleted'],
  });
}
