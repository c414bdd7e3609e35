import type { Pool } from '../database.ts';

/** One way to name users, with exactly one identifier; `place` tells the answers apart. */
export interface Wanted {
  place: number;
  external_id?: string;
  alias_label?: string;
  alias_name?: string;
  /** The profile's UUID. */
  id?: string;
  /** Lower-case. */
  email?: string;
  /** E.164. */
  phone?: string;
  device_id?: string;
}

/** Most profiles that one email address, phone number or device brings: bounds the answer. */
export const MAX_SHARING = 1000;

/** As /users/track chooses: with an external id first, then the most recently updated. */
const rank =
  'row_number() over (order by profiles.external_id is null, profiles.updated_at desc, profiles.id desc)';

/**
 * By the unique indexes of external ids and aliases, the primary key, and the indexes profiles_email,
 * profiles_phone and push_tokens_device; locks nothing.
 */
const statement = `
  with wanted as (
    select *
    from jsonb_to_recordset($2::jsonb) as wanted (
      place integer, external_id text, alias_label text, alias_name text, id uuid, email text, phone text,
      device_id text)
  ),
  found as (
    select wanted.place, 1 as rank, profiles.id
    from wanted
    join profiles on profiles.workspace_id = $1::uuid and profiles.external_id = wanted.external_id
    union all
    select wanted.place, 1, user_aliases.profile_id
    from wanted
    join user_aliases
      on user_aliases.workspace_id = $1::uuid
      and user_aliases.alias_label = wanted.alias_label
      and user_aliases.alias_name = wanted.alias_name
    union all
    select wanted.place, 1, profiles.id
    from wanted
    join profiles on profiles.workspace_id = $1::uuid and profiles.id = wanted.id
    union all
    select wanted.place, sharing.rank, sharing.id
    from wanted
    cross join lateral (
      select profiles.id, ${rank} as rank
      from profiles
      where profiles.workspace_id = $1::uuid and profiles.email = wanted.email
      order by rank
      limit ${MAX_SHARING}
    ) as sharing
    union all
    select wanted.place, sharing.rank, sharing.id
    from wanted
    cross join lateral (
      select profiles.id, ${rank} as rank
      from profiles
      where profiles.workspace_id = $1::uuid and profiles.phone = wanted.phone and profiles.phone_valid
      order by rank
      limit ${MAX_SHARING}
    ) as sharing
    union all
    select wanted.place, 1, sharing.profile_id
    from wanted
    cross join lateral (
      select distinct push_tokens.profile_id
      from push_tokens
      where push_tokens.workspace_id = $1::uuid and push_tokens.device_id = wanted.device_id
      limit ${MAX_SHARING}
    ) as sharing
  )
  select found.place, found.id
  from found
  order by found.place, found.rank, found.id`;

/** The profiles that each identifier means, in the order of the identifiers, best match first. */
export async function findExported(
  pool: Pool,
  workspaceId: string,
  wanted: Wanted[],
): Promise<{ place: number; id: string }[]> {
  const { rows } = await pool.query<{ place: number; id: string }>({
    name: 'find-exported',
    text: statement,
    values: [workspaceId, JSON.stringify(wanted)],
  });
  return rows;
}
