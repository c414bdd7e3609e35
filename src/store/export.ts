import type { ExportedUser } from '../profile/attribute-rule.ts';
import { columnsWith } from '../profile/standard-columns.ts';
import { iso, type Pool } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/** A stored user in the form of an export, which the statement builds. */
export interface StoredUser extends ExportedUser {
  id: string;
  /** Wanted fields, and fields from the same table, that have more than `MAX_LISTED` entries. */
  cut: string[];
}

/** Returns SQL that runs a subquery only if one of these fields is wanted. */
const ifWanted = (fields: string[], query: string) =>
  `case when array[${fields.map((field) => `'${field}'`)}] && $3::text[] then (${query}) end`;

/** Maximum number of push tokens, event names or products of one user that are read. */
export const MAX_LISTED = 10_000;

/** Returns SQL for the rows of a user in a table, in key order. */
const rowsOf = (table: string) => `
    select *
    from ${table}
    where ${table}.workspace_id = profiles.workspace_id and ${table}.profile_id = profiles.id`;

/** Lists are json, not jsonb, because they are only converted to text. */
const aliases = `
  select json_agg(
    json_build_object('alias_name', user_aliases.alias_name, 'alias_label', user_aliases.alias_label)
    order by user_aliases.alias_label, user_aliases.alias_name)
  from user_aliases
  where user_aliases.workspace_id = profiles.workspace_id and user_aliases.profile_id = profiles.id`;

const pushTokens = `
  select json_agg(
    json_build_object('app', push_tokens.app_id, 'token', push_tokens.token, 'device_id', push_tokens.device_id)
    order by push_tokens.created_at, push_tokens.app_id, push_tokens.token)
  from (${rowsOf('push_tokens')}
    limit ${MAX_LISTED}) as push_tokens`;

const customEvents = `
  select json_agg(
    json_build_object(
      'name', event_summaries.name,
      'first', ${iso('event_summaries.first')},
      'last', ${iso('event_summaries.last')},
      'count', event_summaries.count)
    order by event_summaries.name)
  from (${rowsOf('event_summaries')}
    order by event_summaries.name
    limit ${MAX_LISTED}) as event_summaries`;

/** Summaries by product and currency. */
const purchaseRows = `${rowsOf('purchase_summaries')}
    order by purchase_summaries.product_id, purchase_summaries.currency
    limit ${MAX_LISTED}`;

const purchases = `
  select json_agg(
    json_build_object(
      'name', product.product_id,
      'first', ${iso('product.first')},
      'last', ${iso('product.last')},
      'count', product.count)
    order by product.product_id)
  from (
    select
      purchase_summaries.product_id,
      min(purchase_summaries.first) as first,
      max(purchase_summaries.last) as last,
      sum(purchase_summaries.count) as count
    from (${purchaseRows}) as purchase_summaries
    group by purchase_summaries.product_id
  ) as product`;

const revenue = `
  select json_object_agg(earned.currency, earned.revenue)
  from (
    select purchase_summaries.currency, sum(purchase_summaries.revenue) as revenue
    from (${purchaseRows}) as purchase_summaries
    group by purchase_summaries.currency
  ) as earned`;

/** Expressions that return the fields of a table whose rows were cut at MAX_LISTED. */
const cutFields = Object.entries({
  push_tokens: ['push_tokens', 'devices'],
  event_summaries: ['custom_events'],
  purchase_summaries: ['purchases', 'revenue', 'total_revenue'],
}).map(
  ([table, fields]) => `
      case when array[${fields.map((field) => `'${field}'`)}] && $3::text[]
        and (select count(*) from (${rowsOf(table)} limit ${MAX_LISTED + 1}) as listed) > ${MAX_LISTED}
        then array[${fields.map((field) => `'${field}'`)}] else array[]::text[] end`,
);

const apps = `
  select json_agg(
    json_build_object(
      'name', app_summaries.app_id,
      'sessions', app_summaries.sessions,
      'first_used', ${iso('app_summaries.first_session')},
      'last_used', ${iso('app_summaries.last_session')})
    order by app_summaries.app_id)
  from app_summaries
  where app_summaries.workspace_id = profiles.workspace_id and app_summaries.profile_id = profiles.id`;

/**
 * A state belongs to the address in the group's channel. The profile's own state applies only while it has no
 * such address.
 */
const subscriptionGroups = `
  select json_agg(
    json_build_object('id', chosen.id, 'name', chosen.name, 'channel', chosen.channel, 'status', initcap(chosen.state))
    order by chosen.name)
  from (
    select
      subscription_groups.id, subscription_groups.name, subscription_groups.channel, subscription_states.state
    from (values
      ('email', profiles.email, 'email'),
      ('phone', case when profiles.phone_valid then profiles.phone end, 'phone'),
      ('profile', case when profiles.email is null then profiles.id::text end, 'email'),
      ('profile', case when profiles.phone is null or not profiles.phone_valid then profiles.id::text end, 'phone')
    ) as subject (kind, name, address)
    join subscription_states
      on subscription_states.workspace_id = profiles.workspace_id
      and subscription_states.subject_kind = subject.kind
      and subscription_states.subject = subject.name
    join subscription_groups
      on subscription_groups.id = subscription_states.subscription_group_id
      and (subscription_groups.channel = 'email') = (subject.address = 'email')
  ) as chosen`;

/** Time of the last change of the email state: the address's, or the profile's own if it has no address. */
const emailStateSince = iso(`
  case when profiles.email is not null then email_addresses.changed_at else (
    select subscription_history.changed_at
    from subscription_history
    where subscription_history.workspace_id = profiles.workspace_id
      and subscription_history.subject_kind = 'profile'
      and subscription_history.subject = profiles.id::text
      and subscription_history.subscription = ''
    order by subscription_history.id desc
    limit 1) end`);

const emailState =
  'case when profiles.email is null then profiles.email_subscribe else email_addresses.state end';

const attributeColumns = columnsWith(({ merge }) => merge)
  .map(([name, { type }]) => (type === 'time' ? `${iso(`profiles.${name}`)} as ${name}` : `profiles.${name}`))
  .join(',\n    ');

/** Reads by primary keys, user_aliases_profile and push_tokens_profile, in one snapshot; takes no lock. */
const readProfilesStatement = withCitusForm(`
  select
    profiles.id,
    profiles.external_id,
    ${attributeColumns},
    ${iso('profiles.created_at')} as created_at,
    coalesce(${emailState}, 'subscribed') as email_subscribe,
    case ${emailState} when 'opted_in' then ${emailStateSince} end as email_opted_in_at,
    case ${emailState} when 'unsubscribed' then ${emailStateSince} end as email_unsubscribed_at,
    ${iso('email_addresses.hard_bounced_at')} as email_hard_bounced_at,
    coalesce(profiles.push_subscribe, 'subscribed') as push_subscribe,
    ${ifWanted(['custom_attributes'], 'profiles.custom_attributes')} as custom_attributes,
    ${ifWanted(['user_aliases'], aliases)} as user_aliases,
    ${ifWanted(['push_tokens', 'devices'], pushTokens)} as push_tokens,
    ${ifWanted(['custom_events'], customEvents)} as custom_events,
    ${ifWanted(['purchases'], purchases)} as purchases,
    ${ifWanted(['apps'], apps)} as apps,
    ${ifWanted(['revenue', 'total_revenue'], revenue)} as revenue,
    ${ifWanted(['subscription_groups'], subscriptionGroups)} as subscription_groups,
    ${cutFields.join(' ||')} as cut
  from profiles
  left join email_addresses
    on email_addresses.workspace_id = profiles.workspace_id
    and email_addresses.email = profiles.email
  where profiles.workspace_id = $1::uuid
    and profiles.id = any($2::uuid[])`);

/**
 * Returns complete users, unordered. Users that were removed in the meantime are omitted.
 *
 * @param fields names of the wanted fields; fields that need a separate lookup are only read if they are
 * listed
 */
export async function readProfiles(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { ids, fields }: { ids: string[]; fields: string[] },
): Promise<StoredUser[]> {
  const { rows } = await pool.query<StoredUser>({
    name: 'read-profiles',
    text: readProfilesStatement,
    values: [workspaceId, ids, fields],
  });
  return rows;
}
