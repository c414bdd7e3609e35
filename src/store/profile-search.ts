import type { Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/** A user as a list shows one. */
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

/** Which identifiers a search compares with; what is absent is not looked at. */
export interface UserSearch {
  externalId?: string;
  /** What an external id begins with. */
  prefix?: string;
  alias?: { label: string; name: string };
  /** Under any label. */
  aliasName?: string;
  /** The profile's UUID. */
  id?: string;
  /** Lower-case. */
  email?: string;
  /** E.164. */
  phone?: string;
}

/** Labels of a workspace under which an alias is looked for when only its name is given. */
const MAX_LABELS = 50;

/** The last character that there is: behind it stands nothing that begins with the text before. */
const LAST_CHARACTER = '\u{10ffff}';

/** Users of one workspace by one identifier; each limit keeps the planner from reading the table instead. */
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
  // A look-up for each label that there is: the key begins with it.
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

/** By the indexes of external ids, deprecated ones too, aliases, and profiles_email and profiles_phone; locks nothing. */
const searchUsersStatement = `
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
  order by found.rank, profiles.external_id, profiles.id`;

function ofEach(
  pool: Pool,
  workspaceIds: readonly string[],
  send: (some: readonly string[]) => Promise<FoundUser[]>,
): Promise<FoundUser[]> {
  return forEachWorkspace(pool, { given: workspaceIds, workspaceOf: (id) => id }, send);
}

/** The users of these workspaces whom the text may mean; who is named exactly comes first, and `limit` at most. */
export async function searchUsers(
  pool: Pool,
  workspaceIds: string[],
  { search, limit }: { search: UserSearch; limit: number },
): Promise<FoundUser[]> {
  const { externalId, prefix, alias, aliasName, id, email, phone } = search;
  // Where they lie apart, each workspace has its own best ones, in the order of the workspaces.
  const found = await ofEach(pool, workspaceIds, async (some) => {
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
  return found.slice(0, limit);
}

/** By primary key, in the order in which profiles were made. */
const newestUsersStatement = `
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
  limit $2::integer`;

/** The users of these workspaces who were made last. */
export async function newestUsers(pool: Pool, workspaceIds: string[], limit: number): Promise<FoundUser[]> {
  const found = await ofEach(pool, workspaceIds, async (some) => {
    const { rows } = await pool.query<FoundUser>({
      name: 'newest-users',
      text: newestUsersStatement,
      values: [some, limit],
    });
    return rows;
  });
  return found.sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, limit);
}
