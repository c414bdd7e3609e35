import { textArray, uuidArray } from './arrays.ts';
import type { Connection, Pool } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/** States of an address or a profile other than subscription states, with the names that the history uses. */
export const marks = {
  /** State of an email address. */
  hard_bounce: 'hard_bounced',
  /** State of a profile. */
  spam: 'marked_as_spam',
} as const;

export type Mark = keyof typeof marks;

export type Channel = 'email' | 'sms' | 'whatsapp';

export interface Group {
  workspaceId: string;
  id: string;
  channel: Channel;
  archived: boolean;
}

/** Reads by primary key. */
const findGroupsStatement = `
  select
    subscription_groups.workspace_id as "workspaceId",
    subscription_groups.id,
    subscription_groups.channel,
    subscription_groups.archived_at is not null as archived
  from subscription_groups
  where subscription_groups.id = any($1::uuid[])`;

export async function findGroups(tx: Pick<Connection | Pool, 'query'>, ids: string[]): Promise<Group[]> {
  const { rows } = await tx.query<Group>({ name: 'find-groups', text: findGroupsStatement, values: [ids] });
  return rows;
}

/** Stands for the global email state where a group id is expected. */
export const GLOBAL = '';

export interface StoredState {
  workspaceId: string;
  kind: GroupState['subjectKind'];
  subject: string;
  /** Id of a group, or GLOBAL. */
  group: string;
  channel: Group['channel'];
  state: string;
}

/** Reads by the primary keys of the three tables; takes no lock. */
const findStatesStatement = withCitusForm(`
  select
    wanted.workspace_id as "workspaceId",
    wanted.kind,
    wanted.subject,
    stored."group",
    stored.channel,
    stored.state
  from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (workspace_id, kind, subject)
  cross join lateral (
    select subscription_states.subscription_group_id::text as "group", subscription_groups.channel, subscription_states.state
    from subscription_states
    join subscription_groups on subscription_groups.id = subscription_states.subscription_group_id
    where subscription_states.workspace_id = wanted.workspace_id
      and subscription_states.subject_kind = wanted.kind
      and subscription_states.subject = wanted.subject
    union all
    select '${GLOBAL}', 'email', profiles.email_subscribe
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.id = case when wanted.kind = 'profile' then wanted.subject::uuid end
      and profiles.email_subscribe is not null
  ) as stored`);

/**
 * Returns the group states of phone numbers and profiles, and the global state that is stored with a profile.
 */
export async function findStates(
  tx: Connection,
  subjects: { workspaceId: string; kind: string; name: string }[],
): Promise<StoredState[]> {
  const { rows } = await tx.query<StoredState>({
    name: 'find-states',
    text: findStatesStatement,
    values: [
      subjects.map(({ workspaceId }) => workspaceId),
      subjects.map(({ kind }) => kind),
      subjects.map(({ name }) => name),
    ],
  });
  return rows;
}

export interface GroupState {
  workspaceId: string;
  subjectKind: 'email' | 'phone' | 'profile';
  /** Address, or id of the profile. */
  subject: string;
  subscriptionGroupId: string;
  state: string;
}

/** Returns the parameters $1 to $4. */
function keyValues(states: Omit<GroupState, 'state'>[]): Buffer[] {
  return [
    uuidArray(states, (row) => row.workspaceId),
    textArray(states, (row) => row.subjectKind),
    textArray(states, (row) => row.subject),
    uuidArray(states, (row) => row.subscriptionGroupId),
  ];
}

/** Upserts in primary key order; a key may occur only once. `changed_at` is kept if the state is the same. */
const setSubscriptionStatesStatement = withCitusForm(`
  insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
  select given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id, given.state, $6::timestamptz
  from unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[])
    as given (workspace_id, subject_kind, subject, subscription_group_id, state)
  order by given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id
  on conflict (workspace_id, subject_kind, subject, subscription_group_id) do update set
    state = excluded.state,
    changed_at = case
      when subscription_states.state = excluded.state then subscription_states.changed_at else excluded.changed_at end`);

export async function setSubscriptionStates(
  tx: Connection,
  states: GroupState[],
  now: string,
): Promise<void> {
  await tx.query({
    name: 'set-subscription-states',
    text: setSubscriptionStatesStatement,
    values: [...keyValues(states), textArray(states, (row) => row.state), now],
  });
}

/** Inserts in primary key order. Existing states are kept. */
const takeSubscriptionStatesStatement = withCitusForm(`
  insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
  select given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id, given.state, $6::timestamptz
  from unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[])
    as given (workspace_id, subject_kind, subject, subscription_group_id, state)
  order by given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id
  on conflict (workspace_id, subject_kind, subject, subscription_group_id) do nothing`);

/** Copies the group states of a profile to addresses that it gets. A key may occur only once. */
export async function takeSubscriptionStates(
  tx: Connection,
  states: GroupState[],
  now: string,
): Promise<void> {
  await tx.query({
    name: 'take-subscription-states',
    text: takeSubscriptionStatesStatement,
    values: [...keyValues(states), textArray(states, (row) => row.state), now],
  });
}

/** Deletes by primary key and locks these rows. */
const dropSubscriptionStatesStatement = withCitusForm(`
  delete from subscription_states
  using unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[])
    as given (workspace_id, subject_kind, subject, subscription_group_id)
  where subscription_states.workspace_id = given.workspace_id
    and subscription_states.subject_kind = given.subject_kind
    and subscription_states.subject = given.subject
    and subscription_states.subscription_group_id = given.subscription_group_id`);

/** Deletes states that were copied from a profile to its address. Missing states are ignored. */
export async function dropSubscriptionStates(
  tx: Connection,
  states: Omit<GroupState, 'state'>[],
): Promise<void> {
  await tx.query({
    name: 'drop-subscription-states',
    text: dropSubscriptionStatesStatement,
    values: keyValues(states),
  });
}

/**
 * Reads by primary keys: the state of the address in the group's channel, or the profile's own state if it
 * has no such address. The limits keep the planner from using joins.
 */
const readProfileStatesStatement = `
  select wanted.id as name, said.state
  from unnest($2::uuid[]) as wanted (id)
  cross join lateral (
    select case $4 when 'email' then profiles.email when 'phone' then case when profiles.phone_valid then profiles.phone end end as address
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id = wanted.id
    limit 1
  ) as profile
  cross join lateral (
    select subscription_states.state
    from subscription_states
    where subscription_states.workspace_id = $1::uuid
      and subscription_states.subject_kind = case when profile.address is null then 'profile' else $4 end
      and subscription_states.subject = coalesce(profile.address, wanted.id::text)
      and subscription_states.subscription_group_id = $3::uuid
    limit 1
  ) as said`;

/** Returns the states of profiles in a group. Profiles without a state are omitted. */
export async function readProfileStates(
  pool: Pool,
  { workspaceId, groupId, kind }: GroupAddresses,
  ids: string[],
): Promise<{ name: string; state: string }[]> {
  const { rows } = await pool.query<{ name: string; state: string }>({
    name: 'read-profile-states',
    text: readProfileStatesStatement,
    values: [workspaceId, ids, groupId, kind],
  });
  return rows;
}

/** Reads by primary key. */
const readAddressStatesStatement = `
  select subscription_states.subject as name, subscription_states.state
  from subscription_states
  where subscription_states.workspace_id = $1::uuid
    and subscription_states.subject_kind = $2
    and subscription_states.subject = any($3::text[])
    and subscription_states.subscription_group_id = $4::uuid`;

interface GroupAddresses {
  workspaceId: string;
  groupId: string;
  /** Kind of address that the group's channel uses. */
  kind: 'email' | 'phone';
}

/** Returns the states of addresses in a group. Addresses without a state are omitted. */
export async function readAddressStates(
  pool: Pool,
  { workspaceId, groupId, kind }: GroupAddresses,
  addresses: string[],
): Promise<{ name: string; state: string }[]> {
  const { rows } = await pool.query<{ name: string; state: string }>({
    name: 'read-address-states',
    text: readAddressStatesStatement,
    values: [workspaceId, kind, addresses, groupId],
  });
  return rows;
}

/** Maximum number of states that are counted for a group and state. */
export const MAX_COUNTED = 10_000;

/**
 * Reads at most MAX_COUNTED + 1 entries of the index subscription_states_of_group for each group and state. The limit
 * keeps the planner from joining the groups with all states.
 */
const countStatesStatement = `
  select wanted.id, states.state, counted.total
  from unnest($2::uuid[]) as wanted (id)
  cross join (values ('subscribed'), ('unsubscribed')) as states (state)
  cross join lateral (
    select count(*)::integer as total
    from (
      select 1
      from subscription_states
      where subscription_states.workspace_id = $1::uuid
        and subscription_states.subscription_group_id = wanted.id
        and subscription_states.state = states.state
      limit ${MAX_COUNTED + 1}
    ) as limited
  ) as counted`;

/** Number of addresses and users by their state in a group; MAX_COUNTED + 1 means more. */
export type StateCounts = Record<'subscribed' | 'unsubscribed', number>;

/** Counts the states of groups of a workspace. Archived groups have states too. */
export async function countStates(
  pool: Pool,
  workspaceId: string,
  groupIds: readonly string[],
): Promise<Map<string, StateCounts>> {
  const { rows } = await pool.query<{ id: string; state: keyof StateCounts; total: number }>({
    name: 'count-states',
    text: countStatesStatement,
    values: [workspaceId, groupIds],
  });
  const counts = new Map<string, StateCounts>(groupIds.map((id) => [id, { subscribed: 0, unsubscribed: 0 }]));
  for (const { id, state, total } of rows) counts.get(id)![state] = total;
  return counts;
}
