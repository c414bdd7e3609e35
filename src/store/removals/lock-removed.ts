import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from '../identity/pair.ts';
import type { RemovedProfile } from './removed-profile.ts';

/** By primary key. What another worker has in hand is left to it. */
const statement = `
  select removed_profiles.workspace_id, removed_profiles.profile_id as id, removed_profiles.fate
  from ${keysTable}
  join removed_profiles
    on removed_profiles.workspace_id = wanted.workspace_id
    and removed_profiles.profile_id = wanted.id
  for update of removed_profiles skip locked`;

/** Takes removed profiles in hand until the transaction ends. */
export async function lockRemoved(tx: Connection, keys: ProfileKey[]): Promise<RemovedProfile[]> {
  const { rows } = await tx.query<RemovedProfile>({
    name: 'lock-removed',
    text: statement,
    values: keyValues(keys),
  });
  return rows;
}
