import { normalizeEmail, searchedPhone } from '../profile/addresses.ts';
import { toProfileId } from '../profile/identifier.ts';
import type { Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { holdersOf, lastUpdated } from './identifiers.ts';
import { withCitusForm } from './one-workspace.ts';

/** A user in a list. */
export interface FoundUser {
  workspaceId: string;
  id: string;
  externalId: string | null;
  email: string | null;
  phone: string | null;
  firstName: string | null;
  lastName: string | null;
  createdAt: Date;
  updatedAt: Date;
}

/** Identifiers that a search compares with. Absent ones are ignored. */
export interface UserSearch {
  externalId?: string;
  /** Beginning of an external id. */
  prefix?: string;
  alias?: { label: string; name: string };
  /** Name of an alias with any label. */
  aliasName?: string;
  /** The profile's UUID. */
  id?: string;
  /** Lower-case. */
  email?: string;
  /** E.164. */
  phone?: string;
}

const SERVICE_ID = /^[0-9a-f]{24}$/;
const PHONE_LIKE = /^[+\uff0b]?[\p{Nd}\s().-]{6,25}$/u;

/** Returns whether a text could be a phone number, in any notation. */
export const isPhoneLike = (text: string): boolean => PHONE_LIKE.test(text);

/** Whether a text looks like an email address or phone number. Such a text is personal data even as an external id. */
export function isAddress(text: string): boolean {
  return text.includes('@') || isPhoneLike(text);
}

/** Returns a search for each kind of identifier that a search text could be. */
export function parseUserSearch(text: string): UserSearch {
  const [, label, name] = /^([^:]+):(.+)$/s.exec(text) ?? [];
  const email = text.includes('@') ? normalizeEmail(text) : undefined;
  const phone = isPhoneLike(text) ? searchedPhone(text) : undefined;
  return {
    ...(SERVICE_ID.test(text) && { id: toProfileId(text) }),
    ...{ externalId: text, prefix: text, aliasName: text },
    ...(label !== undefined && name !== undefined && { alias: { label, name } }),
    ...(email !== undefined && { email }),
    ...(phone?.valid && { phone: phone.phone }),
  };
}

/** Maximum number of labels of a workspace that are searched for an alias if only its name is given. */
const MAX_LABELS = 50;

/**
 * The last Unicode character. With it appended, a text is an upper bound of all texts with that beginning.
 */
export const LAST_CHARACTER = '\u{10ffff}';

/**
 * Subqueries that find users of one workspace by one identifier. The limits keep the planner from scanning
 * the table.
 */
const branches = [
  `select 1 as rank, profiles.id from profiles
    where profiles.workspace_id = wanted.workspace_id and profiles.id = $2::uuid limit 1`,
  `select 1 as rank, profiles.id from profiles
    where profiles.workspace_id = wanted.workspace_id and profiles.external_id = $3::text limit 1`,
  `select 1 as rank, deprecated.profile_id as id from deprecated_external_ids as deprecated
    where deprecated.workspace_id = wanted.workspace_id and deprecated.external_id = $3::text limit 1`,
  `select 2 as rank, aliases.profile_id as id from user_aliases as aliases
    where aliases.workspace_id = wanted.workspace_id and aliases.alias_label = $4::text and aliases.alias_name = $5::text
    limit 1`,
  // One lookup per label, because the key starts with the label.
  `select 2 as rank, named.profile_id as id
    from (
      with recursive labels as (
        (
          select aliases.alias_label from user_aliases as aliases
          where aliases.workspace_id = wanted.workspace_id and $6::text is not null
          order by aliases.workspace_id, aliases.alias_label limit 1
        )
        union all
        select following.alias_label
        from labels
        cross join lateral (
          select aliases.alias_label from user_aliases as aliases
          where aliases.workspace_id = wanted.workspace_id and aliases.alias_label > labels.alias_label
          order by aliases.workspace_id, aliases.alias_label limit 1
        ) as following
      )
      select labels.alias_label from labels limit ${MAX_LABELS}
    ) as labels
    cross join lateral (
      select aliases.profile_id from user_aliases as aliases
      where aliases.workspace_id = wanted.workspace_id
        and aliases.alias_label = labels.alias_label and aliases.alias_name = $6::text
      limit 1
    ) as named`,
  `select 3 as rank, holders.id from (
      select profiles.id from profiles
      where profiles.workspace_id = wanted.workspace_id and profiles.email = $7::text limit $11::integer) as holders`,
  `select 3 as rank, holders.id from (
      select profiles.id from profiles
      where profiles.workspace_id = wanted.workspace_id and profiles.phone = $8::text and profiles.phone_valid
      limit $11::integer) as holders`,
  `select 4 as rank, alike.id from (
      select profiles.id from profiles
      where uuid_send(profiles.workspace_id) = uuid_send(wanted.workspace_id)
        and profiles.external_id collate "C" >= $9::text and profiles.external_id collate "C" <= $10::text
      order by profiles.external_id collate "C" limit $11::integer) as alike`,
];

/**
 * Reads by the indexes of external ids, deprecated external ids and aliases, and by profiles_email and
 * profiles_phone; takes no lock.
 */
const searchUsersStatement = withCitusForm(`
  select
    found.workspace_id as "workspaceId", profiles.id, profiles.external_id as "externalId", profiles.email,
    profiles.phone, profiles.first_name as "firstName", profiles.last_name as "lastName",
    profiles.created_at as "createdAt", profiles.updated_at as "updatedAt"
  from (
    select wanted.workspace_id, hits.id, min(hits.rank) as rank
    from unnest($1::uuid[]) as wanted (workspace_id)
    cross join lateral (${branches.map((branch) => `(${branch})`).join('\n      union all\n      ')}) as hits
    group by wanted.workspace_id, hits.id
    order by min(hits.rank), hits.id
    limit $11::integer
  ) as found
  cross join lateral (
    select * from profiles
    where profiles.workspace_id = found.workspace_id and profiles.id = found.id
    limit 1
  ) as profiles
  order by found.rank, profiles.external_id, profiles.id`);

function forWorkspaces(
  pool: Pool,
  workspaceIds: readonly string[],
  send: (some: readonly string[]) => Promise<FoundUser[]>,
): Promise<FoundUser[]> {
  return forEachWorkspace(pool, { given: workspaceIds, workspaceOf: (id) => id }, send);
}

/** Returns up to `limit` users of these workspaces that match the search; exact matches come first. */
export async function searchUsers(
  pool: Pool,
  workspaceIds: string[],
  { search, limit }: { search: UserSearch; limit: number },
): Promise<FoundUser[]> {
  const { externalId, prefix, alias, aliasName, id, email, phone } = search;
  // On a distributed Postgres, each workspace returns its own best matches, in the order of the workspaces.
  const users = await forWorkspaces(pool, workspaceIds, async (some) => {
    const { rows } = await pool.query<FoundUser>({
      name: 'search-users',
      text: searchUsersStatement,
      values: [
        ...[some, id, externalId, alias?.label, alias?.name, aliasName, email, phone],
        ...[prefix, prefix === undefined ? undefined : prefix + LAST_CHARACTER, limit],
      ],
    });
    return rows;
  });
  return users.slice(0, limit);
}

/** Reads by primary key, in order of creation. */
const newestUsersStatement = withCitusForm(`
  select
    wanted.workspace_id as "workspaceId", newest.id, newest.external_id as "externalId", newest.email, newest.phone,
    newest.first_name as "firstName", newest.last_name as "lastName",
    newest.created_at as "createdAt", newest.updated_at as "updatedAt"
  from unnest($1::uuid[]) as wanted (workspace_id)
  cross join lateral (
    select * from profiles
    where profiles.workspace_id = wanted.workspace_id
    order by profiles.workspace_id desc, profiles.id desc
    limit $2::integer
  ) as newest
  order by newest.id desc
  limit $2::integer`);

/** Returns the most recently created users of these workspaces. */
export async function newestUsers(pool: Pool, workspaceIds: string[], limit: number): Promise<FoundUser[]> {
  const users = await forWorkspaces(pool, workspaceIds, async (some) => {
    const { rows } = await pool.query<FoundUser>({
      name: 'newest-users',
      text: newestUsersStatement,
      values: [some, limit],
    });
    return rows;
  });
  return users.sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, limit);
}

/** A wanted user with exactly one identifier. `place` identifies it in the result. */
export interface WantedUser {
  place: number;
  externalId?: string;
  aliasLabel?: string;
  aliasName?: string;
  /** The profile's UUID. */
  id?: string;
  /** Lower-case. */
  email?: string;
  /** E.164. */
  phone?: string;
  deviceId?: string;
}

/**
 * Maximum number of profiles that one email address, phone number or device returns. Limits the size of the
 * response.
 */
export const MAX_ANSWERED = 1000;

/**
 * Maximum number of profiles of an address from which the best are chosen. If there are more, some are
 * ignored.
 */
const MAX_RANKED = 5000;

/**
 * Uses the order of /users/track: profiles with an external id first, then the most recently updated,
 * including updates by events and purchases.
 */
const sharing = (column: 'email' | 'phone', condition: string) => `
    select
      row_number() over (order by profiles.external_id is null, ${lastUpdated} desc, profiles.id desc) as rank,
      profiles.id
    from (${holdersOf({ column, workspaceId: '$1::uuid', address: `wanted.${column}` }, condition, MAX_RANKED)}
    ) as profiles
    order by rank
    limit ${MAX_ANSWERED}`;

/** Even lookups that find at most one row have a limit, which keeps the planner from scanning the table. */
const lookups = [
  `select 1 as rank, profiles.id
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.external_id = wanted."externalId"
    limit 1`,
  `select 1 as rank, deprecated_external_ids.profile_id as id
    from deprecated_external_ids
    where deprecated_external_ids.workspace_id = $1::uuid
      and deprecated_external_ids.external_id = wanted."externalId"
    limit 1`,
  `select 1 as rank, user_aliases.profile_id as id
    from user_aliases
    where user_aliases.workspace_id = $1::uuid
      and user_aliases.alias_label = wanted."aliasLabel"
      and user_aliases.alias_name = wanted."aliasName"
    limit 1`,
  `select 1 as rank, profiles.id
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id = wanted.id
    limit 1`,
  sharing('email', 'true'),
  sharing('phone', 'profiles.phone_valid'),
  `select distinct 1 as rank, push_tokens.profile_id as id
    from push_tokens
    where push_tokens.workspace_id = $1::uuid and push_tokens.device_id = wanted."deviceId"
    limit ${MAX_ANSWERED}`,
];

/**
 * Reads by the unique indexes of external ids, deprecated external ids and aliases, the primary keys of
 * profiles and summaries, and the indexes profiles_email, profiles_phone and push_tokens_device; takes no
 * lock.
 */
const findExportedStatement = withCitusForm(`
  with wanted as (
    select *
    from jsonb_to_recordset($2::jsonb) as wanted (
      place integer, "externalId" text, "aliasLabel" text, "aliasName" text, id uuid, email text, phone text,
      "deviceId" text)
  )
  select found.place, found.id
  from (
    ${lookups
      .map(
        (lookup) => `select wanted.place, hit.rank, hit.id
    from wanted
    cross join lateral (
    ${lookup}
    ) as hit`,
      )
      .join(`
    union all
    `)}
  ) as found
  order by found.place, found.rank, found.id`);

/** Returns the profiles that each identifier matches, in the order of the identifiers, best match first. */
export async function findExported(
  pool: Pool,
  workspaceId: string,
  wanted: WantedUser[],
): Promise<{ place: number; id: string }[]> {
  const { rows } = await pool.query<{ place: number; id: string }>({
    name: 'find-exported',
    text: findExportedStatement,
    values: [workspaceId, JSON.stringify(wanted)],
  });
  return rows;
}
