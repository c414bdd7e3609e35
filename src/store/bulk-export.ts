import type { Json } from '../profile/json.ts';
import type { Definition } from '../profile/segment.ts';
import { iso, type Pool } from './database.ts';
import type { ActivityTable } from './erasures.ts';
import { conditionOf } from './segment-conditions.ts';

/**
 * Maximum number of merges that are followed for one page. Only chains that were built on purpose are longer.
 */
export const MAX_STEPS = 100_000;

/** Follows merges step by step by primary key. `union` stops at a cycle and follows each merge once. */
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
 * Returns the profile that each of these profiles was finally merged into. Profiles that were not merged are
 * omitted.
 *
 * @returns undefined if more than MAX_STEPS merges have to be followed
 */
export async function followMerges(
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
    const visited = new Set<string>();
    let at = id;
    for (let to = next.get(at); to !== undefined && !visited.has(at); to = kept.get(at) ?? next.get(at)) {
      visited.add(at);
      at = to;
    }
    // Later profiles of the same chain take this shortcut.
    for (const one of visited) kept.set(one, at);
  }
  return kept;
}

/** Identifiers of a user, and whether the filter of the export matches. */
export interface Owner {
  id: string;
  externalId: string | null;
  /** First alias by label. Read only if there is no external id. */
  aliasName: string | null;
  aliasLabel: string | null;
  /**
   * Set only if there is no external id and no other user has the address, because the API would choose one
   * of several users.
   */
  ownEmail: string | null;
  ownPhone: string | null;
  /** Whether group states belong to the address and not to the profile. */
  hasEmail: boolean;
  hasPhone: boolean;
  isMeant: boolean;
}

/** SQL of the address if only this user has it. Two rows are enough to decide. */
const exclusiveAddress = (column: 'email' | 'phone', more = '') => `
    case when profiles.external_id is null and (
      select count(*)
      from (
        select from profiles as sharing
        where sharing.workspace_id = $1::uuid and sharing.${column} = profiles.${column} ${more}
        limit 2
      ) as sharing
    ) = 1 then profiles.${column} end`;

/**
 * Reads by primary key, user_aliases_profile, profiles_email and profiles_phone, with one lookup per user.
 */
const readOwners = (condition: string) => `
  select profiles.id, profiles.external_id as "externalId", alias.alias_name as "aliasName",
    alias.alias_label as "aliasLabel", ${exclusiveAddress('email')} as "ownEmail",
    ${exclusiveAddress('phone', 'and sharing.phone_valid and profiles.phone_valid')} as "ownPhone",
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

/** Returns the users with these ids. Removed users are omitted. */
export async function findOwners(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { ids, definition }: { ids: readonly string[]; definition: Definition },
): Promise<Owner[]> {
  const condition = conditionOf(definition, 2);
  const { rows } = await pool.query<Owner>({
    // Without a filter, the statement is the same for every page of every export and is prepared once.
    ...(condition.values.length === 0 && condition.text === 'true' && { name: 'export-owners' }),
    text: readOwners(condition.text),
    values: [workspaceId, ids, ...condition.values],
  });
  return rows;
}

/** A stored subscription group state. */
export interface ExportedGroupState {
  /** Kind of the state's owner: an address, or a profile without one. */
  kind: 'email' | 'phone' | 'profile';
  /** Address, or id of the profile. */
  subject: string;
  groupId: string;
  state: 'subscribed' | 'unsubscribed';
  channel: 'email' | 'sms' | 'whatsapp';
}

/** Reads a page in primary key order. */
const readGroupStatesStatement = `
  select subscription_states.subject_kind as kind, subscription_states.subject,
    subscription_states.subscription_group_id as "groupId", subscription_states.state,
    coalesce((
      select subscription_groups.channel
      from subscription_groups
      where subscription_groups.id = subscription_states.subscription_group_id
      limit 1), 'email') as channel
  from subscription_states
  where subscription_states.workspace_id = $1::uuid
    and (subscription_states.subject_kind, subscription_states.subject, subscription_states.subscription_group_id)
      > ($2::text, $3::text, $4::uuid)
  order by subscription_states.workspace_id, subscription_states.subject_kind, subscription_states.subject,
    subscription_states.subscription_group_id
  limit $5::integer`;

type StateKey = Pick<ExportedGroupState, 'kind' | 'subject' | 'groupId'>;

/** Returns the next group states of a workspace, including those of archived groups. */
export async function readGroupStates(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { after, limit }: { after: Omit<StateKey, 'kind'> & { kind: string }; limit: number },
): Promise<ExportedGroupState[]> {
  const { rows } = await pool.query<ExportedGroupState>({
    name: 'export-group-states',
    text: readGroupStatesStatement,
    values: [workspaceId, after.kind, after.subject, after.groupId, limit],
  });
  return rows;
}

/** Reads a page in primary key order. */
const readEmailStatesStatement = `
  select email_addresses.email, email_addresses.state
  from email_addresses
  where email_addresses.workspace_id = $1::uuid and email_addresses.email > $2::text
  order by email_addresses.workspace_id, email_addresses.email
  limit $3::integer`;

/**
 * Returns the next addresses of a workspace with their global state. The state is null if only a hard bounce
 * is recorded.
 */
export async function readEmailStates(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { after, limit }: { after: string; limit: number },
): Promise<{ email: string; state: string | null }[]> {
  const { rows } = await pool.query<{ email: string; state: string | null }>({
    name: 'export-email-states',
    text: readEmailStatesStatement,
    values: [workspaceId, after, limit],
  });
  return rows;
}

/**
 * An event or a purchase with the field names of `/users/track`. Missing values are null; times are ISO 8601
 * in UTC.
 */
export type ExportedActivity = Record<string, Json>;

/** A row that was read. `activity` is null if the row is outside the wanted range. */
interface ActivityOf {
  id: string;
  /** Owner at the time of acceptance. The profile may since have been merged or deleted. */
  profileId: string;
  activity: ExportedActivity | null;
}

/** Selects rows of a workspace, ordered by user id and then by acceptance. */
interface ActivityPart {
  workspaceId: string;
  /** Position after which to begin. */
  after: { profileId: string; id: string };
  /** Smallest id. Ids start with the time of acceptance. */
  since: string;
  /**
   * First id of the month of `since`. Partitions of earlier months are not opened; all rows of the others are
   * read.
   */
  sinceMonth: string;
  /** Range of the time of the event, in ISO 8601, excluding `until`. */
  from: string | null;
  until: string | null;
  /** Maximum number of rows that are read. */
  limit: number;
}

/** Prices were received as JSON numbers and are exported as the same numbers. */
const activity = {
  events: `json_build_object('name', events.name, 'time', ${iso('events."time"')}, 'app_id', events.app_id,
      'properties', events.properties)`,
  purchases: `json_build_object('product_id', purchases.product_id, 'currency', purchases.currency,
      'price', purchases.price, 'quantity', purchases.quantity, 'time', ${iso('purchases."time"')},
      'app_id', purchases.app_id, 'properties', purchases.properties)`,
};

/**
 * Reads a page in primary key order over the months from $4 on. Rows outside the range are returned too, so
 * that they count toward the limit.
 */
const readStatement = (table: ActivityTable) => `
  select ${table}.id, ${table}.profile_id as "profileId",
    case when ${table}.id >= $8::uuid and ($5::timestamptz is null or ${table}."time" >= $5) and ($6::timestamptz is null or ${table}."time" < $6)
      then ${activity[table]} end as activity
  from ${table}
  where ${table}.workspace_id = $1::uuid
    and (${table}.profile_id, ${table}.id) > ($2::uuid, $3::uuid)
    and ${table}.id >= $4::uuid
  order by ${table}.workspace_id, ${table}.profile_id, ${table}.id
  limit $7::integer`;

/** Returns the next rows of a workspace, including those of deleted users that are not erased yet. */
export async function readActivity(
  pool: Pick<Pool, 'query'>,
  table: ActivityTable,
  { workspaceId, after, since, sinceMonth, from, until, limit }: ActivityPart,
): Promise<ActivityOf[]> {
  const { rows } = await pool.query<ActivityOf>({
    name: `export-${table}`,
    text: readStatement(table),
    values: [workspaceId, after.profileId, after.id, sinceMonth, from, until, limit, since],
  });
  return rows;
}

/** A table that an export reads, and the key after which it continues. */
type ExportedTable =
  | { table: 'profiles'; after: string }
  | { table: 'events' | 'purchases'; after: string; since: string }
  | { table: 'subscription_states' | 'email_addresses' };

const conditions: Record<ExportedTable['table'], string> = {
  profiles: 'and profiles.id > $2::uuid',
  events: 'and events.profile_id >= $2::uuid and events.id >= $3::uuid',
  purchases: 'and purchases.profile_id >= $2::uuid and purchases.id >= $3::uuid',
  subscription_states: '',
  email_addresses: '',
};

/**
 * Returns the planner's estimate of the remaining rows of a workspace, for a progress bar. Counting a very
 * large table would take minutes.
 */
export async function estimateRows(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  exported: ExportedTable,
): Promise<number> {
  const { table, after, since } = { after: undefined, since: undefined, ...exported };
  const values = [workspaceId, after, since].filter((value) => value !== undefined);
  const { rows } = await pool.query<{ 'QUERY PLAN': [{ Plan: { 'Plan Rows': number } }] }>({
    text: `explain (format json) select from ${table} where ${table}.workspace_id = $1::uuid ${conditions[table]}`,
    values,
  });
  return rows[0]?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0;
}
