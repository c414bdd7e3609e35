import type { Json } from '../profile/json.ts';
import type { Definition } from '../profile/segment.ts';
import { iso, type Pool } from './database.ts';
import type { ActivityTable } from './erasures.ts';
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

/** A state of a group as it is stored. */
export interface ExportedGroupState {
  /** Whose it is: an address's, or that of a profile for lack of one. */
  kind: 'email' | 'phone' | 'profile';
  /** The address, or the profile's id. */
  subject: string;
  groupId: string;
  state: 'subscribed' | 'unsubscribed';
  channel: 'email' | 'sms' | 'whatsapp';
}

/** A page in the order of the primary key. */
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

/** The next states of a workspace's groups, archived groups' as well. */
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

/** A page in the order of the primary key. */
const readEmailStatesStatement = `
  select email_addresses.email, email_addresses.state
  from email_addresses
  where email_addresses.workspace_id = $1::uuid and email_addresses.email > $2::text
  order by email_addresses.workspace_id, email_addresses.email
  limit $3::integer`;

/** The next addresses of a workspace with their global state; null: they are only known to bounce. */
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

/** An event or a purchase under the names of `/users/track`, null without data; times are ISO 8601 in UTC. */
export type ExportedActivity = Record<string, Json>;

/** A row that was looked at; `activity` is null where its time is not wanted. */
interface ActivityOf {
  id: string;
  /** Whose it was as it came in: since then they may have been merged into somebody, or deleted. */
  profileId: string;
  activity: ExportedActivity | null;
}

/** Which rows of a workspace, in the order of their users' ids, and of one user as they were accepted. */
interface ActivityPart {
  workspaceId: string;
  /** Behind this row of this user. */
  after: { profileId: string; id: string };
  /** Only ids from this one on, which begin with the time of acceptance. */
  since: string;
  /** The first id of that month: months before it are not opened, and of the others every row is looked at. */
  sinceMonth: string;
  /** ISO 8601; by the time at which it happened, without `until` itself. */
  from: string | null;
  until: string | null;
  /** Rows that are looked at, at most. */
  limit: number;
}

/** Prices came as numbers of JSON, and go as the same ones. */
const activity = {
  events: `json_build_object('name', events.name, 'time', ${iso('events."time"')}, 'app_id', events.app_id,
      'properties', events.properties)`,
  purchases: `json_build_object('product_id', purchases.product_id, 'currency', purchases.currency,
      'price', purchases.price, 'quantity', purchases.quantity, 'time', ${iso('purchases."time"')},
      'app_id', purchases.app_id, 'properties', purchases.properties)`,
};

/** A page in the order of the primary key, over the months from $4 on: no row of theirs is passed over uncounted. */
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

/** Reads the next rows of a workspace, those of deleted users among them as long as they are not erased. */
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

/** What is walked by an export, and behind which key. */
type Walked =
  | { table: 'profiles'; after: string }
  | { table: 'events' | 'purchases'; after: string; since: string }
  | { table: 'subscription_states' | 'email_addresses' };

const conditions: Record<Walked['table'], string> = {
  profiles: 'and profiles.id > $2::uuid',
  events: 'and events.profile_id >= $2::uuid and events.id >= $3::uuid',
  purchases: 'and purchases.profile_id >= $2::uuid and purchases.id >= $3::uuid',
  subscription_states: '',
  email_addresses: '',
};

/**
 * About how many rows a workspace has there, as Postgres's planner sees it: for a progress bar. Nothing is counted, which
 * of very many rows would take minutes.
 */
export async function estimateRows(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  walked: Walked,
): Promise<number> {
  const { table, after, since } = { after: undefined, since: undefined, ...walked };
  const values = [workspaceId, after, since].filter((value) => value !== undefined);
  const { rows } = await pool.query<{ 'QUERY PLAN': [{ Plan: { 'Plan Rows': number } }] }>({
    text: `explain (format json) select from ${table} where ${table}.workspace_id = $1::uuid ${conditions[table]}`,
    values,
  });
  return rows[0]?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0;
}
