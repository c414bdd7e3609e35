import type { Pool } from '../database.ts';

/** By the primary keys of merged_profiles and profiles; a chain of merges has no cycles, since a merged profile is gone. */
const statement = `
  with recursive kept (id, steps) as (
    select $2::uuid, 0
    union all
    select merged_profiles.kept_id, kept.steps + 1
    from kept
    join merged_profiles
      on merged_profiles.workspace_id = $1::uuid
      and merged_profiles.profile_id = kept.id
  )
  select profiles.id
  from kept
  join profiles
    on profiles.workspace_id = $1::uuid
    and profiles.id = kept.id
  order by kept.steps
  limit 1`;

/** The profile, or the one that it was merged into, however often; undefined when that is gone. */
export async function findKeptProfile(
  pool: Pool,
  workspaceId: string,
  profileId: string,
): Promise<string | undefined> {
  const values = [workspaceId, profileId];
  const { rows } = await pool.query<{ id: string }>({ name: 'find-kept-profile', text: statement, values });
  return rows[0]?.id;
}
