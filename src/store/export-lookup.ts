import type { Pool } from './database.ts';
import { holdersOf, lastUpdated } from './identifiers.ts';

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
export const MAX_ANSWERED = 1000;

/** Most profiles on one address that are looked at for the best of them: some, where there are more. */
const MAX_LOOKED_AT = 5000;

/** As /users/track chooses: with an external id first, then the most recently updated, by an event or purchase too. */
const sharing = (column: 'email' | 'phone', condition: string) => `
    select
      row_number() over (order by profiles.external_id is null, ${lastUpdated} desc, profiles.id desc) as rank,
      profiles.id
    from (${holdersOf({ column, workspaceId: '$1::uuid', address: `wanted.${column}` }, condition, MAX_LOOKED_AT)}
    ) as profiles
    order by rank
    limit ${MAX_ANSWERED}`;

/** A limit even where only one row can be found: it keeps the planner from reading the table instead. */
const branches = [
  `select 1 as rank, profiles.id
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.external_id = wanted.external_id
    limit 1`,
  `select 1 as rank, deprecated_external_ids.profile_id as id
    from deprecated_external_ids
    where deprecated_external_ids.workspace_id = $1::uuid
      and deprecated_external_ids.external_id = wanted.external_id
    limit 1`,
  `select 1 as rank, user_aliases.profile_id as id
    from user_aliases
    where user_aliases.workspace_id = $1::uuid
      and user_aliases.alias_label = wanted.alias_label
      and user_aliases.alias_name = wanted.alias_name
    limit 1`,
  `select 1 as rank, profiles.id
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id = wanted.id
    limit 1`,
  sharing('email', 'true'),
  sharing('phone', 'profiles.phone_valid'),
  `select distinct 1 as rank, push_tokens.profile_id as id
    from push_tokens
    where push_tokens.workspace_id = $1::uuid and push_tokens.device_id = wanted.device_id
    limit ${MAX_ANSWERED}`,
];

/**
 * By the unique indexes of external ids, deprecated ones too, and aliases, the primary keys of profiles and summaries, and the indexes
 * profiles_email, profiles_phone and push_tokens_device; locks nothing.
 */
const findExportedStatement = `
  with wanted as (
    select *
    from jsonb_to_recordset($2::jsonb) as wanted (
      place integer, external_id text, alias_label text, alias_name text, id uuid, email text, phone text,
      device_id text)
  )
  select found.place, found.id
  from (
    ${branches
      .map(
        (branch) => `select wanted.place, hit.rank, hit.id
    from wanted
    cross join lateral (
    ${branch}
    ) as hit`,
      )
      .join(`
    union all
    `)}
  ) as found
  order by found.place, found.rank, found.id`;

/** The profiles that each identifier means, in the order of the identifiers, best match first. */
export async function findExported(
  pool: Pool,
  workspaceId: string,
  wanted: Wanted[],
): Promise<{ place: number; id: string }[]> {
  const { rows } = await pool.query<{ place: number; id: string }>({
    name: 'find-exported',
    text: findExportedStatement,
    values: [workspaceId, JSON.stringify(wanted)],
  });
  return rows;
}
