import type { Identifier } from '../profile/identifier.ts';
import type { AcceptedObject } from './envelope.ts';

/**
 * The arrays of requests that objects come from, by what the ledger knows them by: numbers are permanent. `service_ids`
 * stands for the wire name of the service's own ids.
 */
export const inputArrays = {
  attributes: 1,
  events: 2,
  purchases: 3,
  user_aliases: 4,
  alias_updates: 5,
  aliases_to_identify: 6,
  emails_to_identify: 7,
  phone_numbers_to_identify: 8,
  merge_updates: 9,
  external_ids: 10,
  service_ids: 11,
  email_addresses: 12,
  phone_numbers: 13,
  external_id_renames: 14,
  subscription_groups: 15,
  email: 16,
  emails: 17,
  phone: 18,
  phones: 19,
  external_id: 20,
} as const;
export type InputArray = keyof typeof inputArrays;

/** The array that held the object, as the errors of the same request name it; undefined: it is none that we know. */
export function inputArrayOf(object: AcceptedObject): InputArray | undefined {
  switch (object.kind) {
    case 'attributes':
    case 'events':
    case 'purchases':
      return object.kind;
    case 'alias_new':
      return 'user_aliases';
    case 'alias_update':
      return 'alias_updates';
    case 'identify':
      return identifies(object.user?.identifier);
    case 'merge':
      return 'merge_updates';
    case 'delete':
      return deletes(object.user?.identifier);
    case 'external_id_rename':
      return 'external_id_renames';
    case 'external_id_remove':
      return 'external_ids';
    case 'group_state':
      return object.input_array ?? 'subscription_groups';
    case 'email_change':
      return 'email';
    default:
      return undefined;
  }
}

function identifies(identifier: Identifier | undefined): InputArray {
  if (identifier && 'email' in identifier) return 'emails_to_identify';
  return identifier && 'phone' in identifier ? 'phone_numbers_to_identify' : 'aliases_to_identify';
}

function deletes(identifier: Identifier | undefined): InputArray {
  if (!identifier || 'external_id' in identifier) return 'external_ids';
  if ('user_alias' in identifier) return 'user_aliases';
  if ('service_id' in identifier) return 'service_ids';
  return 'email' in identifier ? 'email_addresses' : 'phone_numbers';
}
