import type { Connection } from '../database.ts';
import { keysTable, keyValues, type MergePair, type ProfileKey } from '../identity/pair.ts';

/** By the primary keys of merged_profiles and profiles: follows each merge to its end. */
const statement = `
  with recursive chain as (
    select wanted.workspace_id, wanted.id as merged_id, wanted.id as kept_id, false as moved
    from ${keysTable}
    union
    select chain.workspace_id, chain.merged_id, merged_profiles.kept_id, true
    from chain
    join merged_profiles
      on merged_profiles.workspace_id = chain.workspace_id
      and merged_profiles.profile_id = chain.kept_id
  )
  select chain.workspace_id, chain.merged_id, chain.kept_id
  from chain
  join profiles on profiles.workspace_id = chain.workspace_id and profiles.id = chain.kept_id
  where chain.moved`;

/** Whom merged profiles belong to now; those whose last owner is gone as well are missing. */
export async function findKept(tx: Connection, merged: ProfileKey[]): Promise<MergePair[]> {
  const { rows } = await tx.query<MergePair>({
    name: 'find-kept',
    text: statement,
    values: keyValues(merged),
  });
  return rows;
}
