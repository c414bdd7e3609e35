import type { Pool } from '../database.ts';

export interface LinkUser {
  id: string;
  email: string | null;
  /** Epoch milliseconds, Postgres's clock: the one that links are made and revoked by. */
  now: number;
}

/** By the unique index profiles_external_id, else by the primary keys of deprecated_external_ids and profiles. */
const statement = `
  select found.id, found.email, (extract(epoch from clock_timestamp()) * 1000)::bigint as now
  from (
    select 1 as rank, profiles.id, profiles.email
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.external_id = $2::text
    union all
    select 2 as rank, profiles.id, profiles.email
    from deprecated_external_ids
    join profiles
      on profiles.workspace_id = deprecated_external_ids.workspace_id
      and profiles.id = deprecated_external_ids.profile_id
    where deprecated_external_ids.workspace_id = $1::uuid and deprecated_external_ids.external_id = $2::text
  ) as found
  order by found.rank
  limit 1`;

/** Whom an external id names, also one that was renamed away. */
export async function findLinkUser(
  pool: Pool,
  workspaceId: string,
  externalId: string,
): Promise<LinkUser | undefined> {
  const values = [workspaceId, externalId];
  const { rows } = await pool.query<LinkUser>({ name: 'find-link-user', text: statement, values });
  return rows[0];
}
