import type { Pool } from '../database.ts';
import type { ProfileKey } from '../identity/pair.ts';

/** In the order of the primary key; the table holds what is left to do, and nothing else. */
const statement = `
  select removed_profiles.workspace_id, removed_profiles.profile_id as id
  from removed_profiles
  order by removed_profiles.workspace_id, removed_profiles.profile_id
  limit $1`;

/** Profiles that are gone and have something left to be done for them. */
export async function selectRemoved(pool: Pool, limit: number): Promise<ProfileKey[]> {
  const { rows } = await pool.query<ProfileKey>({ name: 'select-removed', text: statement, values: [limit] });
  return rows;
}
