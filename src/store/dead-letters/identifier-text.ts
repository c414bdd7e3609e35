import type { Identifier } from '../../profile/identifier.ts';
import { toProfileId } from '../../profile/service-id.ts';

/**
 * An identifier as one text that Postgres can store and make itself: the kind's letter, and the value; an alias is
 * its label's length in bytes, its label and its name; a service id is the profile's UUID.
 */
export function identifierText(identifier: Identifier): string {
  if ('external_id' in identifier) return `x:${identifier.external_id}`;
  if ('user_alias' in identifier) {
    const { alias_label, alias_name } = identifier.user_alias;
    return `a:${Buffer.byteLength(alias_label)}:${alias_label}${alias_name}`;
  }
  if ('service_id' in identifier) return `s:${toProfileId(identifier.service_id)}`;
  return 'email' in identifier ? `e:${identifier.email}` : `p:${identifier.phone}`;
}
