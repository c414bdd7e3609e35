import type { Json } from '../../profile/json.ts';
import type { Pool } from '../database.ts';

/** A stored user. Members are named as on the wire, null without data; times are ISO 8601 in UTC. */
export interface StoredUser {
  id: string;
  latitude: number | null;
  longitude: number | null;
  /** Revenue by currency. */
  revenue: Record<string, number> | null;
  push_tokens: { app: string; token: string; device_id: string }[] | null;
  [member: string]: Json;
}

/** ISO 8601 with milliseconds, in UTC whatever the session's time zone. */
const iso = (time: string) => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** What is looked up only if one of these fields is wanted. */
const ifWanted = (fields: string[], query: string) =>
  `case when array[${fields.map((field) => `'${field}'`)}] && $3::text[] then (${query}) end`;

const aliases = `
  select jsonb_agg(
    jsonb_build_object('alias_name', user_aliases.alias_name, 'alias_label', user_aliases.alias_label)
    order by user_aliases.alias_label, user_aliases.alias_name)
  from user_aliases
  where user_aliases.workspace_id = profiles.workspace_id and user_aliases.profile_id = profiles.id`;

const pushTokens = `
  select jsonb_agg(
    jsonb_build_object('app', push_tokens.app_id, 'token', push_tokens.token, 'device_id', push_tokens.device_id)
    order by push_tokens.created_at, push_tokens.app_id, push_tokens.token)
  from push_tokens
  where push_tokens.workspace_id = profiles.workspace_id and push_tokens.profile_id = profiles.id`;

const customEvents = `
  select jsonb_agg(
    jsonb_build_object(
      'name', event_summaries.name,
      'first', ${iso('event_summaries.first')},
      'last', ${iso('event_summaries.last')},
      'count', event_summaries.count)
    order by event_summaries.name)
  from event_summaries
  where event_summaries.workspace_id = profiles.workspace_id and event_summaries.profile_id = profiles.id`;

const purchases = `
  select jsonb_agg(
    jsonb_build_object(
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
    from purchase_summaries
    where purchase_summaries.workspace_id = profiles.workspace_id and purchase_summaries.profile_id = profiles.id
    group by purchase_summaries.product_id
  ) as product`;

const revenue = `
  select jsonb_object_agg(earned.currency, earned.revenue)
  from (
    select purchase_summaries.currency, sum(purchase_summaries.revenue) as revenue
    from purchase_summaries
    where purchase_summaries.workspace_id = profiles.workspace_id and purchase_summaries.profile_id = profiles.id
    group by purchase_summaries.currency
  ) as earned`;

const apps = `
  select jsonb_agg(
    jsonb_build_object(
      'name', app_summaries.app_id,
      'sessions', app_summaries.sessions,
      'first_used', ${iso('app_summaries.first_session')},
      'last_used', ${iso('app_summaries.last_session')})
    order by app_summaries.app_id)
  from app_summaries
  where app_summaries.workspace_id = profiles.workspace_id and app_summaries.profile_id = profiles.id`;

/** A state is that of the address that the group is about; the profile's own one only while it has no such address. */
const subscriptionGroups = `
  select jsonb_agg(
    jsonb_build_object('id', told.id, 'name', told.name, 'channel', told.channel, 'status', initcap(told.state))
    order by told.name)
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
  ) as told`;

/** When the state became what it is: the address's, or that which the profile has for lack of one. */
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

/** By primary keys and user_aliases_profile, push_tokens_profile; one snapshot, locks nothing. */
const statement = `
  select
    profiles.id,
    profiles.external_id,
    profiles.first_name,
    profiles.last_name,
    profiles.email,
    profiles.dob,
    profiles.home_city,
    profiles.country,
    profiles.phone,
    profiles.language,
    profiles.time_zone,
    profiles.latitude,
    profiles.longitude,
    profiles.gender,
    profiles.image_url,
    profiles.facebook,
    profiles.twitter,
    profiles.email_open_tracking_disabled,
    profiles.email_click_tracking_disabled,
    ${iso('profiles.created_at')} as created_at,
    ${iso('profiles.date_of_first_session')} as date_of_first_session,
    ${iso('profiles.date_of_last_session')} as date_of_last_session,
    ${iso('profiles.marked_email_as_spam_at')} as marked_email_as_spam_at,
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
    ${ifWanted(['subscription_groups'], subscriptionGroups)} as subscription_groups
  from profiles
  left join email_addresses
    on email_addresses.workspace_id = profiles.workspace_id
    and email_addresses.email = profiles.email
  where profiles.workspace_id = $1::uuid
    and profiles.id = any($2::uuid[])`;

/**
 * Reads users whole, in no order; one that is gone meanwhile is missing.
 *
 * @param fields names of the wanted fields: what costs a look-up of its own is only read if it is among them
 */
export async function readProfiles(
  pool: Pool,
  workspaceId: string,
  ids: string[],
  fields: string[],
): Promise<StoredUser[]> {
  const { rows } = await pool.query<StoredUser>({
    name: 'read-profiles',
    text: statement,
    values: [workspaceId, ids, fields],
  });
  return rows;
}
