import type pg from 'pg';
import { toServiceId } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { type Card, eventSums, purchaseSums } from './card.ts';
import type { SequentialModel } from './sequential-model.ts';

/** A workspace in a comparable form: without ids and times that only one side knows. */
export interface Canonical {
  users: Json[];
  addressStates: Record<string, Json>;
}

export function canonicalModel(model: SequentialModel): Canonical {
  return {
    users: sorted(model.cards.map(canonicalCard)),
    addressStates: Object.fromEntries([...model.addressStates].sort()),
  };
}

function canonicalCard(card: Card): Json {
  return ordered({
    ...(card.serviceId && { serviceId: card.serviceId }),
    externalId: card.externalId ?? null,
    deprecated: [...card.deprecated].sort(),
    aliases: [...card.aliases].map(([label, name]) => `${label}:${name}`).sort(),
    columns: Object.fromEntries(card.columns),
    custom: Object.fromEntries(card.custom),
    states: Object.fromEntries(card.states),
    tokens: [...card.tokens].sort(),
    events: sorted(card.events.map((event) => ({ ...event }))),
    eventSummaries: sorted(
      [...eventSums(card)].map(([name, { count, first, last }]) => ({ name, count, first, last })),
    ),
    purchases: sorted(card.purchases.map((purchase) => ({ ...purchase }))),
    purchaseSummaries: sorted([...purchaseSums(card)].map(([key, sum]) => ({ key, ...sum }))),
  });
}

/** SQL that formats a time like the model: ISO 8601 in UTC with milliseconds. */
export const iso = (column: string) =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

const owned = (table: string, row: string) =>
  `(select coalesce(jsonb_agg(${row}), '[]') from ${table} as own
     where own.workspace_id = $1 and own.profile_id = profiles.id)`;

/** Events and purchases of merged users keep the id of the merged profile, which refers to the kept one. */
const activity = (table: string, row: string) =>
  `(with recursive family as (
     select profiles.id
     union all
     select merged_profiles.profile_id from family
       join merged_profiles on merged_profiles.workspace_id = $1 and merged_profiles.kept_id = family.id)
    select coalesce(jsonb_agg(${row}), '[]') from family
      join ${table} as own on own.workspace_id = $1 and own.profile_id = family.id)`;

const readUsers = `
select id, external_id as "externalId", custom_attributes as custom,
  jsonb_strip_nulls(jsonb_build_object(
    'email', email, 'phone', phone, 'phone_valid', phone_valid, 'first_name', first_name, 'home_city', home_city,
    'country', country, 'language', language, 'push_subscribe', push_subscribe,
    'email_open_tracking_disabled', email_open_tracking_disabled, 'facebook', facebook,
    'date_of_last_session', ${iso('date_of_last_session')},
    'current_location', case when latitude is not null then
       jsonb_build_object('latitude', latitude, 'longitude', longitude) end)) as columns,
  jsonb_strip_nulls(jsonb_build_object('', email_subscribe)) || coalesce(
    (select jsonb_object_agg(subscription_group_id, state) from subscription_states
      where subscription_states.workspace_id = $1 and subject_kind = 'profile'
        and subject = profiles.id::text), '{}') as states,
  ${owned('deprecated_external_ids', 'to_jsonb(external_id)')} as deprecated,
  ${owned('user_aliases', "to_jsonb(alias_label || ':' || alias_name)")} as aliases,
  ${owned('push_tokens', 'to_jsonb(token)')} as tokens,
  ${activity('events', `jsonb_build_object('name', name, 'time', ${iso('time')}, 'properties', properties)`)} as events,
  ${owned(
    'event_summaries',
    `jsonb_build_object('name', name, 'first', ${iso('first')}, 'last', ${iso('last')}, 'count', count)`,
  )} as "eventSummaries",
  ${activity(
    'purchases',
    `jsonb_build_object('product', product_id, 'currency', currency, 'price', price, 'quantity', quantity, 'time', ${iso('time')})`,
  )} as purchases,
  ${owned(
    'purchase_summaries',
    `jsonb_build_object('key', product_id || ' ' || currency, 'first', ${iso('first')}, 'last', ${iso('last')},
       'count', count, 'revenue', revenue)`,
  )} as "purchaseSummaries"
from profiles where workspace_id = $1`;

const readAddressStates = `
select jsonb_object_agg(address, state) as states from (
  select email || ' ' as address, state from email_addresses where workspace_id = $1
  union all
  select subject || ' ' || subscription_group_id, state from subscription_states
   where workspace_id = $1 and subject_kind <> 'profile'
) as rows`;

/** @param existing service ids that the model knows as well */
export async function canonicalStore(
  pool: pg.Pool,
  workspaceId: string,
  existing: string[],
): Promise<Canonical> {
  const [users, states] = await Promise.all([
    pool.query<{ id: string; [member: string]: Json }>(readUsers, [workspaceId]),
    pool.query(readAddressStates, [workspaceId]),
  ]);
  return {
    users: sorted(
      users.rows.map(({ id, ...user }) => {
        const serviceId = toServiceId(id);
        return ordered({
          ...(existing.includes(serviceId) && { serviceId }),
          ...user,
          ...Object.fromEntries(
            Object.entries(user).flatMap(([name, list]) =>
              Array.isArray(list) ? [[name, sorted(list)]] : [],
            ),
          ),
        });
      }),
    ),
    addressStates: Object.fromEntries(Object.entries(states.rows[0].states ?? {}).sort()) as Record<
      string,
      Json
    >,
  };
}

function sorted(list: Json[]): Json[] {
  return list
    .map(ordered)
    .map((value) => JSON.stringify(value))
    .sort()
    .map((text) => JSON.parse(text));
}

/** Sorts names alphabetically at every depth. */
function ordered(value: Json): Json {
  if (Array.isArray(value)) return value.map(ordered);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, member]): [string, Json] => [name, ordered(member)]);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}
