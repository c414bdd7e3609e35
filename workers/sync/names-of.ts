import type { SourceRow } from '../../src/integrations/source.ts';
import {
  emailOf,
  externalIdOf,
  type Identifier,
  phoneOf,
  serviceIdOf,
  userAliasOf,
} from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { identifierText } from '../../src/store/dead-letters/identifier-text.ts';

/**
 * Everybody whom a row's columns name, though a row may name but one: what is kept of it goes when any of them is
 * deleted. What nobody can be called is passed over.
 */
export function namesOf(identifiers: SourceRow['identifiers']): string[] {
  const { external_id, alias_name, alias_label, service_id, email, phone } = identifiers;
  const named: ({ identifier: Identifier } | { error: string } | false)[] = [
    isThere(external_id) && externalIdOf(external_id),
    isThere(alias_name) && isThere(alias_label) && userAliasOf({ alias_name, alias_label }),
    isThere(service_id) && serviceIdOf(service_id, 'service_id'),
    isThere(email) && emailOf(email),
    isThere(phone) && phoneOf(phone),
  ];
  return named.flatMap((one) => (one && 'identifier' in one ? identifierText(one.identifier) : []));
}

function isThere(value: Json | undefined): value is string {
  return typeof value === 'string' && value !== '';
}
