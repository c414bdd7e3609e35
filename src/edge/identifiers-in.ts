import {
  emailOf,
  externalIdOf,
  type Identifier,
  identifierOf,
  isGiven,
  phoneOf,
  serviceIdOf,
  userAliasOf,
} from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import type { Refusal } from '../profile/refusal.ts';
import { isRecord } from '../profile/values.ts';

/** Maximum number of identifiers of one object. */
const MAX_IDENTIFIERS = 4;

/** Names of the arrays whose objects have one identifier. Their other members may be attributes. */
const trackArrays: ReadonlySet<string> = new Set(['attributes', 'events', 'purchases']);

/** Members whose values have members that identify a user. */
const nested = ['identifier_to_merge', 'identifier_to_keep'];

type Read = { identifier: Identifier } | Refusal;

interface Place {
  /** Name of the request's array. */
  inputArray: string;
  /** Wire name of the service id. */
  serviceIdField: string;
}

/**
 * Returns the valid identifiers in a refused object or element, at most four. The object has broken a rule, so it may be
 * any JSON.
 */
export function identifiersIn(object: Json, { inputArray, serviceIdField }: Place): Identifier[] {
  const found: Identifier[] = [];
  const add = (value: Json | undefined, read: (given: Json) => Read) => {
    if (found.length >= MAX_IDENTIFIERS || !isGiven(value)) return;
    const result = read(value);
    if ('identifier' in result) found.push(result.identifier);
  };
  if (!isRecord(object)) {
    const read = readerOf(inputArray, serviceIdField);
    if (read) add(object, read);
    return found;
  }
  if (trackArrays.has(inputArray)) {
    const chosen = identifierOf(object, serviceIdField);
    return 'identifier' in chosen ? [chosen.identifier] : [];
  }
  const readMembers = (record: Record<string, Json>) => {
    for (const name of ['external_id', 'current_external_id', 'new_external_id'])
      add(record[name], (value) => externalIdOf(value));
    add(record.user_alias, userAliasOf);
    for (const name of ['alias_name', 'old_alias_name']) {
      const { [name]: alias_name, alias_label } = record;
      if (isGiven(alias_name) && isGiven(alias_label)) add({ alias_name, alias_label }, userAliasOf);
    }
    add(record[serviceIdField], (value) => serviceIdOf(value, serviceIdField));
    add(record.email, emailOf);
    add(record.phone, phoneOf);
    for (const [list, read] of [
      ['external_ids', externalIdOf],
      ['emails', emailOf],
      ['phones', phoneOf],
    ] as const) {
      const values = record[list];
      if (Array.isArray(values))
        for (const value of values.slice(0, MAX_IDENTIFIERS)) add(value, (given) => read(given));
    }
  };
  readMembers(object);
  for (const name of nested) {
    const inner = object[name];
    if (isRecord(inner)) readMembers(inner);
  }
  return found;
}

/** Returns how to read the elements of an array of strings or numbers; undefined for other arrays. */
function readerOf(inputArray: string, serviceIdField: string): ((value: Json) => Read) | undefined {
  if (inputArray.startsWith(serviceIdField)) return (value) => serviceIdOf(value, serviceIdField);
  if (inputArray.startsWith('external_id')) return (value) => externalIdOf(value);
  if (inputArray.startsWith('email')) return emailOf;
  if (inputArray.startsWith('phone')) return phoneOf;
  return undefined;
}
