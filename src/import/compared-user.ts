import { isGiven } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { isDatetime, parseTime, toIso } from '../profile/time.ts';
import { isRecord } from '../profile/values.ts';
import type { Values } from './reader.ts';

/** Fields of an exported user that both services have. Their own ids, buckets and times of making are none of these. */
export const comparedFields: readonly string[] = [
  ...['user_aliases', 'first_name', 'last_name', 'email', 'dob', 'home_city', 'country', 'phone', 'language'],
  ...['time_zone', 'last_coordinates', 'gender', 'custom_attributes', 'custom_events', 'purchases'],
  ...['total_revenue', 'email_subscribe', 'push_subscribe'],
];

/** A user of an export, as two of them are compared. */
export interface ComparedUser {
  /** Equal in both exports: by external id, else the first alias, else email or phone. */
  key: string;
  /** Canonical JSON by field; an attribute is `custom_attributes.plan`. Absent where there is nothing. */
  fields: Record<string, string>;
}

/** @returns nothing of one whom only an id of the service itself names, or a device */
export function comparedUser(values: Values): ComparedUser | undefined {
  const given = Object.fromEntries(comparedFields.map((name) => [name, structureOf(values[name])]));
  const aliases = listOf(given.user_aliases)
    .map(({ alias_label = null, alias_name = null }) => canonical([alias_label, alias_name]))
    .sort();
  const key = keyOf(values, aliases[0]);
  if (key === undefined) return undefined;
  const fields = new Map<string, Json>();
  for (const name of comparedFields) fields.set(name, given[name] ?? null);
  fields.set('user_aliases', aliases);
  if (typeof given.email === 'string') fields.set('email', given.email.toLowerCase());
  fields.delete('custom_attributes');
  if (isRecord(given.custom_attributes))
    for (const [name, value] of Object.entries(given.custom_attributes))
      fields.set(`custom_attributes.${name}`, value);
  for (const name of ['custom_events', 'purchases']) fields.set(name, summaries(given[name]));
  // A state that nobody has said of an address is told as this one, or not at all.
  for (const name of ['email_subscribe', 'push_subscribe'])
    if (fields.get(name) === 'subscribed') fields.delete(name);
  if (fields.get('total_revenue') === 0) fields.delete('total_revenue');
  const told = [...fields].filter(([, value]) => !isNothing(value));
  return { key, fields: Object.fromEntries(told.map(([name, value]) => [name, canonical(value)])) };
}

function keyOf({ external_id, email, phone }: Values, alias: string | undefined): string | undefined {
  if (isGiven(external_id)) return `external_id ${external_id}`;
  if (alias !== undefined) return `alias ${alias}`;
  if (isGiven(email)) return `email ${String(email).toLowerCase()}`;
  return isGiven(phone) ? `phone ${phone}` : undefined;
}

/** Lists and objects are texts of JSON in a Parquet file. */
function structureOf(value: Json | undefined): Json | undefined {
  if (typeof value !== 'string' || !/^[[{]/.test(value)) return value;
  try {
    return JSON.parse(value) as Json;
  } catch {
    return value;
  }
}

const listOf = (value: Json | undefined) => (Array.isArray(value) ? value.filter(isRecord) : []);

/** By name, with how often: first and last times are told to the second here, and more finely there. */
function summaries(value: Json | undefined): Json {
  const counts = listOf(value).map(({ name = null, count = null }): [string, Json] => [String(name), count]);
  return Object.fromEntries(counts);
}

function isNothing(value: Json): boolean {
  if (value === null || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** JSON with members in one order, and one spelling of each moment. It is shown: `canonicalText` is for digests, and no JSON. */
const canonical = (value: Json): string => JSON.stringify(value, (_name, one: Json) => inOneWay(one));

function inOneWay(value: Json): Json {
  if (isRecord(value))
    return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
  const time = typeof value === 'string' && isDatetime(value) ? parseTime(value) : undefined;
  return time === undefined ? value : toIso(time);
}
