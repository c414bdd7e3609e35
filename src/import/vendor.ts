import { isGiven } from '../profile/identifier.ts';
import { type Json, parsedJson, parsedOrText } from '../profile/json.ts';
import { columnNames, filterTexts } from '../profile/standard-columns.ts';
import { asRecord, isRecord, recordsOf } from '../profile/values.ts';
import type { ImportType, Mapped } from './mapping.ts';
import type { Layout, Refusal, Values } from './reader.ts';

/** An object of the API and its type. */
export type Sent = { type: ImportType | 'aliases'; object: Values };

/**
 * A file format of the vendor, as far as its public documentation describes it, or Penstock's own export
 * format.
 */
interface VendorFormat {
  layout: Layout;
  /** Types of objects that rows can be; the first is the default. Empty if each row names its type. */
  types: readonly ImportType[];
  /** Columns whose names differ from the API. */
  columns(serviceIdField: string): readonly Mapped[];
  /** Translates a row after it was mapped. */
  translate(values: Values, type: ImportType): { sent: Sent[] } | Refusal;
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
    // A user that is identified only by an alias is created as well.
    if (isGiven(object.user_alias)) object._update_existing_only = false;
    if (isGiven(subscription_group_id))
      object.subscription_groups = [
        { subscription_group_id, subscription_state: subscription_state ?? null },
      ];
    return { sent: [{ type, object }] };
  },
};

/**
 * Keeps the properties of an event: a column `bought.properties.size` is the property `size` of events named
 * `bought`, and is omitted for other events.
 */
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

/** Fields of an exported user that the API accepts under the same name. */
const TAKEN = ['external_id', ...filterTexts, 'email_subscribe', 'push_subscribe'];

/**
 * https://www.braze.com/docs/api/endpoints/export/user_data/post_users_segment
 *
 * An exported user has aggregates of events and purchases, and app names where the API requires app ids.
 * These cannot be imported.
 */
const segmentExport: VendorFormat = {
  layout: 'ndjson',
  types: ['users'],
  columns: none,
  translate: (values) => ({ sent: userOf(values, TAKEN) }),
};

/** Converts an exported user to an object of the API, and one object for each further alias. */
function userOf(values: Values, taken: readonly string[]): [Sent, ...Sent[]] {
  const object: Values = {};
  for (const field of taken) if (isGiven(values[field])) object[field] = values[field];
  if (isRecord(values.custom_attributes))
    // A custom attribute with the name of a field is omitted.
    for (const [name, value] of Object.entries(values.custom_attributes))
      if (!Object.hasOwn(object, name) && !taken.includes(name)) object[name] = value;
  const [longitude, latitude] = Array.isArray(values.last_coordinates) ? values.last_coordinates : [];
  if (typeof longitude === 'number' && typeof latitude === 'number')
    object.current_location = { longitude, latitude };
  const aliases = recordsOf(values.user_aliases);
  const [first] = aliases;
  if (!isGiven(object.external_id) && first) {
    object.user_alias = { alias_name: first.alias_name ?? null, alias_label: first.alias_label ?? null };
    object._update_existing_only = false;
    return [{ type: 'users', object }];
  }
  const { external_id = null } = object;
  const sent = aliases.map(({ alias_name = null, alias_label = null }): Sent => {
    return { type: 'aliases', object: { external_id, alias_name, alias_label } };
  });
  return [{ type: 'users', object }, ...sent];
}

/** Further fields of Penstock's export that the API accepts unchanged. */
const OWN_TAKEN = [...new Set([...TAKEN, ...columnNames(({ field }) => field)])];

/** Fields that a Parquet file has as JSON texts. */
const STRUCTURES = [
  ...['user_aliases', 'last_coordinates', 'custom_attributes', 'push_tokens'],
  ...columnNames(({ type }) => type === 'json'),
];

/** Maximum number of push tokens in one object. */
const TOKENS_AT_ONCE = 100;

/**
 * Format of users in `penstock export`, as NDJSON or Parquet. Aggregates and the times of subscription states
 * are not imported.
 */
const ownExport: VendorFormat = {
  layout: 'ndjson',
  types: ['users'],
  columns: none,
  translate(given) {
    const values = { ...given };
    for (const name of STRUCTURES) {
      const value = values[name];
      if (typeof value === 'string') values[name] = parsedOrText(value);
    }
    // The export has this default also for addresses whose state was never set.
    for (const name of ['email_subscribe', 'push_subscribe'])
      if (values[name] === 'subscribed') delete values[name];
    const [user, ...aliases] = userOf(values, OWN_TAKEN);
    const tokens = recordsOf(values.push_tokens);
    const own = tokens.map(({ app = null, token = null, device_id = null }) => ({
      ...{ app_id: app, token, device_id },
    }));
    const { external_id, user_alias, email, phone } = user.object;
    const isNamed = [external_id, user_alias, email, phone].some(isGiven);
    if (own.length > 0) user.object.push_tokens = own.slice(0, TOKENS_AT_ONCE);
    // A user that is identified only by a device.
    if (!isNamed && own.length === 1) user.object.push_token_import = true;
    const further: Sent[] = [];
    for (let at = TOKENS_AT_ONCE; at < own.length; at += TOKENS_AT_ONCE) {
      const push_tokens = own.slice(at, at + TOKENS_AT_ONCE);
      const name = isGiven(external_id) ? { external_id } : isGiven(user_alias) ? { user_alias } : undefined;
      further.push({ type: 'users', object: { ...(name ?? { email, phone }), push_tokens } as Values });
    }
    return { sent: [user, ...aliases, ...further] };
  },
};

const EVENT = 'users.behaviors.CustomEvent';
const PURCHASE = 'users.behaviors.Purchase';

/**
 * https://www.braze.com/docs/user_guide/data_and_analytics/braze_currents/event_glossary/customer_behavior_events/
 *
 * Custom events and purchases, either flat as in storage exports or nested as in connectors.
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
        field: 'event_type',
        refused: `'event_type' is not valid: ${(typeof kind === 'string' ? kind : JSON.stringify(kind)).slice(0, 100)} cannot be imported, only ${EVENT} and ${PURCHASE}`,
      };
    const time = timeOf(values.time);
    if (time === undefined)
      return { field: 'time', refused: "'time' is not valid: it must be seconds since 1970" };
    const own = nested ? (body.custom_properties ?? body.purchase_properties) : body.properties;
    const properties = propertiesOf(own);
    if (properties === undefined)
      return {
        field: 'properties',
        refused: "'properties' is not valid: it must be an object or a JSON string of an object",
      };
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
  return asRecord(value) ?? asRecord(parsedJson(String(value)));
}

export const vendorFormats = {
  'braze-user-import': userImport,
  'braze-segment-export': segmentExport,
  'braze-currents': currents,
  'penstock-export': ownExport,
};
export type VendorName = keyof typeof vendorFormats;
export const vendorNames = Object.keys(vendorFormats) as VendorName[];
