import type { Definition } from '../profile/segment.ts';
import type { Pool } from './database.ts';
import { conditionOf } from './segment-conditions.ts';

/** Merges that are followed for one page, of whatever length: more than any that was not made on purpose. */
export const MAX_STEPS = 100_000;

/** Step by step along the primary key; `union` ends where a circle would begin, and goes each way once. */
const followStatement = `
  with recursive way as (
    select hit.profile_id, hit.kept_id
    from unnest($2::uuid[]) as wanted (id)
    cross join lateral (
      select merged_profiles.profile_id, merged_profiles.kept_id
      from merged_profiles
      where merged_profiles.workspace_id = $1::uuid and merged_profiles.profile_id = wanted.id
      limit 1
    ) as hit
    union
    select hit.profile_id, hit.kept_id
    from way
    cross join lateral (
      select merged_profiles.profile_id, merged_profiles.kept_id
      from merged_profiles
      where merged_profiles.workspace_id = $1::uuid and merged_profiles.profile_id = way.kept_id
      limit 1
    ) as hit
  )
  select way.profile_id as id, way.kept_id as kept
  from way
  limit ${MAX_STEPS} + 1`;

/**
 * Who has taken these profiles in, at last; who was not merged is not in it.
 * @returns undefined when there are more than MAX_STEPS merges on the way
 */
export async function findKept(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  profileIds: readonly string[],
): Promise<Map<string, string> | undefined> {
  const { rows } = await pool.query<{ id: string; kept: string }>({
    name: 'follow-merges',
    text: followStatement,
    values: [workspaceId, profileIds],
  });
  if (rows.length > MAX_STEPS) return undefined;
  const next = new Map(rows.map(({ id, kept }) => [id, kept]));
  const kept = new Map<string, string>();
  for (const id of profileIds) {
    const passed = new Set<string>();
    let at = id;
    for (let to = next.get(at); to !== undefined && !passed.has(at); to = kept.get(at) ?? next.get(at)) {
      passed.add(at);
      at = to;
    }
    // Whoever stands on the same way has it shorter.
    for (const one of passed) kept.set(one, at);
  }
  return kept;
}

/** By which names a user is known, and whether a filter means them. */
export interface Owner {
  id: string;
  externalId: string | null;
  /** The first by its label; read only without an external id. */
  aliasName: string | null;
  aliasLabel: string | null;
  /** Only if nobody else has it: of several the API would choose one. */
  ownEmail: string | null;
  ownPhone: string | null;
  /** Whether states of groups are the address's, and not the profile's. */
  hasEmail: boolean;
  hasPhone: boolean;
  isMeant: boolean;
}

/** Whether this user alone has it; two are enough to know. */
const alone = (column: 'email' | 'phone', more = '') => `
    case when profiles.external_id is null and (
      select count(*)
      from (
        select from profiles as sharing
        where sharing.workspace_id = $1::uuid and sharing.${column} = profiles.${column} ${more}
        limit 2
      ) as sharing
    ) = 1 then profiles.${column} end`;

/** By primary key, user_aliases_profile, profiles_email and profiles_phone, a look-up for each user. */
const readOwners = (condition: string) => `
  select profiles.id, profiles.external_id as "externalId", alias.alias_name as "aliasName",
    alias.alias_label as "aliasLabel", ${alone('email')} as "ownEmail",
    ${alone('phone', 'and sharing.phone_valid and profiles.phone_valid')} as "ownPhone",
    profiles.email is not null as "hasEmail",
    profiles.phone is not null and profiles.phone_valid is true as "hasPhone", ${condition} as "isMeant"
  from profiles
  left join lateral (
    select user_aliases.alias_name, user_aliases.alias_label
    from user_aliases
    where user_aliases.workspace_id = $1::uuid and user_aliases.profile_id = profiles.id
      and profiles.external_id is null
    order by user_aliases.workspace_id, user_aliases.profile_id, user_aliases.alias_label
    limit 1
  ) as alias on true
  where profiles.workspace_id = $1::uuid and profiles.id = any($2::uuid[])`;

/** The users with these ids; one who is gone is missing. */
export async function findOwners(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { ids, definition }: { ids: readonly string[]; definition: Definition },
): Promise<Owner[]> {
  const condition = conditionOf(definition, 2);
  const { rows } = await pool.query<Owner>({
    // Planned once, where it is the same for every page of every export.
    ...(condition.values.length === 0 && condition.text === 'true' && { name: 'export-owners' }),
    text: readOwners(condition.text),
    values: [workspaceId, ids, ...condition.values],
  });
  return rows;
}
