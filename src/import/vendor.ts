import { isGiven } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import type { ImportType, Mapped } from './mapping.ts';
import type { Layout, Values } from './reader.ts';

/** One object of the API, and what it is one of. */
export type Sent = { type: ImportType | 'aliases'; object: Values };

/** A vendor's own form of a file, as far as its public documents show it. */
interface VendorFormat {
  layout: Layout;
  /** What its rows may be; the first, unless told. None: each row says it. */
  types: readonly ImportType[];
  /** Columns that have other names there than in the API. */
  columns(serviceIdField: string): readonly Mapped[];
  /** What a row becomes, behind its mapping. */
  translate(values: Values, type: ImportType): { sent: Sent[] } | { refused: string };
}

const renamed = (field: string, column: string): Mapped => ({ field, column, reading: undefined });
const none = () => [];

/** https://www.braze.com/docs/user_guide/audience/manage_audience/import_users/csv_import/ */
const userImport: VendorFormat = {
  layout: 'csv',
  types: ['users', 'events'],
  columns: (serviceIdField) => [
    renamed('user_alias.alias_name', 'user_alias_name'),
    renamed('user_alias.alias_label', 'user_alias_label'),
    renamed(serviceIdField, 'braze_id'),
  ],
  translate(values, type) {
    if (type === 'events') return { sent: [{ type, object: withOwnProperties(values) }] };
    const { subscription_group_id, subscription_state, ...object } = values;
    // A user whom only an alias names is made as well.
    if (isGiven(object.user_alias)) object._update_existing_only = false;
    if (isGiven(subscription_group_id))
      object.subscription_groups = [
        { subscription_group_id, subscription_state: subscription_state ?? null },
      ];
    return { sent: [{ type, object }] };
  },
};

/** A column `bought.properties.size` is the property `size` of events with the name `bought`, and nothing of others. */
function withOwnProperties(values: Values): Values {
  const { properties, ...object } = values;
  if (!isRecord(properties)) return values;
  const prefix = `${object.name}.properties.`;
  const own = Object.entries(properties).flatMap(([name, value]) => {
    if (name.startsWith(prefix)) return [[name.slice(prefix.length), value] as const];
    return name.includes('.properties.') ? [] : [[name, value] as const];
  });
  return { ...object, properties: Object.fromEntries(own) };
}

/** Fields of an exported user that the API takes under the same name. */
const TAKEN = [
  ...['external_id', 'first_name', 'last_name', 'email', 'dob', 'home_city', 'country', 'phone', 'language'],
  ...['time_zone', 'gender', 'email_subscribe', 'push_subscribe'],
];

/**
 * https://www.braze.com/docs/api/endpoints/export/user_data/post_users_segment
 *
 * An exported user has sums of events and purchases, and names of apps where the API wants their ids: none of that can be
 * brought in.
 */
const segmentExport: VendorFormat = {
  layout: 'ndjson',
  types: ['users'],
  columns: none,
  translate(values) {
    const object: Values = {};
    for (const field of TAKEN) if (isGiven(values[field])) object[field] = values[field];
    if (isRecord(values.custom_attributes))
      // A custom attribute is none of the fields.
      for (const [name, value] of Object.entries(values.custom_attributes))
        if (!Object.hasOwn(object, name) && !TAKEN.includes(name)) object[name] = value;
    const [longitude, latitude] = Array.isArray(values.last_coordinates) ? values.last_coordinates : [];
    if (typeof longitude === 'number' && typeof latitude === 'number')
      object.current_location = { longitude, latitude };
    const aliases = (Array.isArray(values.user_aliases) ? values.user_aliases : []).filter(isRecord);
    const [first] = aliases;
    if (!isGiven(object.external_id) && first) {
      object.user_alias = { alias_name: first.alias_name ?? null, alias_label: first.alias_label ?? null };
      object._update_existing_only = false;
      return { sent: [{ type: 'users', object }] };
    }
    const { external_id = null } = object;
    const sent = aliases.map(({ alias_name = null, alias_label = null }): Sent => {
      return { type: 'aliases', object: { external_id, alias_name, alias_label } };
    });
    return { sent: [{ type: 'users', object }, ...sent] };
  },
};

const EVENT = 'users.behaviors.CustomEvent';
const PURCHASE = 'users.behaviors.Purchase';

/**
 * https://www.braze.com/docs/user_guide/data_and_analytics/braze_currents/event_glossary/customer_behavior_events/
 *
 * Custom events and purchases, flat as for storage or nested as for a connector.
 */
const currents: VendorFormat = {
  layout: 'ndjson',
  types: [],
  columns: none,
  translate(values) {
    const nested = isRecord(values.user) ? values.user : undefined;
    const body = nested && isRecord(values.properties) ? values.properties : values;
    const kind = values.event_type ?? (isGiven(body.product_id) ? PURCHASE : EVENT);
    if (kind !== EVENT && kind !== PURCHASE)
      return {
        refused: `'event_type' is not valid: ${(typeof kind === 'string' ? kind : JSON.stringify(kind)).slice(0, 100)} is not brought in, only ${EVENT} and ${PURCHASE}`,
      };
    const time = timeOf(values.time);
    if (time === undefined) return { refused: "'time' is not valid: it must be seconds since 1970" };
    const own = nested ? (body.custom_properties ?? body.purchase_properties) : body.properties;
    const properties = propertiesOf(own);
    if (properties === undefined)
      return { refused: "'properties' is not valid: it must be an object, or one as JSON" };
    const { app_id } = body;
    const common = {
      external_id: (nested ?? values).external_user_id ?? null,
      ...{ time, properties },
      ...(isGiven(app_id) && { app_id }),
    };
    if (kind === EVENT) return { sent: [{ type: 'events', object: { ...common, name: body.name ?? null } }] };
    const { product_id = null, currency = null, price = null } = body;
    return { sent: [{ type: 'purchases', object: { ...common, product_id, currency, price } }] };
  },
};

function timeOf(value: Json | undefined): string | undefined {
  const seconds = typeof value === 'string' && value !== '' ? Number(value) : value;
  if (typeof seconds !== 'number' || !(Math.abs(seconds) < 1e11)) return undefined;
  return new Date(seconds * 1000).toISOString();
}

function propertiesOf(value: Json | undefined): Values | undefined {
  if (!isGiven(value)) return {};
  if (isRecord(value)) return value;
  try {
    const parsed: Json = JSON.parse(String(value));
    return isRecord(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

export const vendorFormats = {
  'braze-user-import': userImport,
  'braze-segment-export': segmentExport,
  'braze-currents': currents,
};
export type VendorName = keyof typeof vendorFormats;
export const vendorNames = Object.keys(vendorFormats) as VendorName[];
