import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from './pair.ts';

/** The deleted profiles and all whom they have taken in: what those did is theirs, and is erased with them. */
const statement = `
  with recursive gone as (
    select wanted.workspace_id, wanted.id
    from ${keysTable}
    union
    select merged_profiles.workspace_id, merged_profiles.profile_id
    from gone
    join merged_profiles
      on merged_profiles.workspace_id = gone.workspace_id
      and merged_profiles.kept_id = gone.id
  )
  insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
  select gone.workspace_id, gone.id, 'deleted', $3::timestamptz
  from gone
  order by gone.workspace_id, gone.id
  on conflict (workspace_id, profile_id) do update set fate = 'deleted'`;

/** Asks for the erasure of everything that the profiles have done. */
export async function recordDeletes(tx: Connection, keys: ProfileKey[], now: Date): Promise<void> {
  await tx.query({ name: 'record-deletes', text: statement, values: [...keyValues(keys), now] });
}
