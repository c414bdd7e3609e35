import type { Pool } from '../database.ts';

/**
 * By primary keys: the state of the address that the group is about, or the profile's own one while it has no such
 * address. The limit keeps the planner from a join.
 */
const statement = `
  select wanted.id as name, subscription_states.state
  from unnest($2::uuid[]) as wanted (id)
  cross join lateral (
    select case $4 when 'email' then profiles.email when 'phone' then case when profiles.phone_valid then profiles.phone end end as address
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id = wanted.id
    limit 1
  ) as profile
  join subscription_states
    on subscription_states.workspace_id = $1::uuid
    and subscription_states.subject_kind = case when profile.address is null then 'profile' else $4 end
    and subscription_states.subject = coalesce(profile.address, wanted.id::text)
    and subscription_states.subscription_group_id = $3::uuid`;

/**
 * What profiles have said of a group; one that has said nothing is missing.
 *
 * @param kind of address that the group is about
 */
export async function readProfileStates(
  pool: Pool,
  workspaceId: string,
  groupId: string,
  kind: 'email' | 'phone',
  ids: string[],
): Promise<{ name: string; state: string }[]> {
  const { rows } = await pool.query<{ name: string; state: string }>({
    name: 'read-profile-states',
    text: statement,
    values: [workspaceId, ids, groupId, kind],
  });
  return rows;
}
