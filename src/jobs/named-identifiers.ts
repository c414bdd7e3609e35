import type { Identifier } from '../profile/identifier.ts';
import type { AcceptedAttributes, AcceptedObject } from './envelope.ts';

/**
 * Every identifier that an object names, each of which orders it: it takes effect after all that was accepted
 * before it for any of them, and before all that is accepted after it.
 *
 * An attribute object that sets an address names that address too: what is addressed to it afterwards has to find
 * the user. Empty for an import of push tokens, which names nobody.
 */
export function namedIdentifiers(object: AcceptedObject): Identifier[] {
  switch (object.kind) {
    case 'attributes':
      // Most set no address, and there are many of them.
      return object.standard?.email || object.standard?.phone
        ? [...addressedBy(object), ...newAddresses(object)]
        : addressedBy(object);
    case 'events':
    case 'purchases':
      return [object.identifier];
    case 'alias_new':
      return [
        { user_alias: object.user_alias },
        ...(object.external_id === undefined ? [] : [{ external_id: object.external_id }]),
      ];
    case 'alias_update': {
      const { alias_label, old_alias_name, new_alias_name } = object;
      return [
        { user_alias: { alias_name: old_alias_name, alias_label } },
        { user_alias: { alias_name: new_alias_name, alias_label } },
      ];
    }
    case 'identify':
      return [object.user.identifier, { external_id: object.external_id }];
    case 'merge':
      return [object.merge.identifier, object.keep.identifier];
    case 'delete':
      return [object.user.identifier];
    case 'external_id_rename':
      return [{ external_id: object.current_external_id }, { external_id: object.new_external_id }];
    case 'group_state':
      return [object.identifier];
    case 'email_change':
      return [{ email: object.email }];
    case 'external_id_remove':
      return [{ external_id: object.external_id }];
  }
}

function addressedBy({ identifier }: AcceptedAttributes): Identifier[] {
  return identifier ? [identifier] : [];
}

function newAddresses({ standard }: AcceptedAttributes): Identifier[] {
  const addresses: Identifier[] = [];
  if (standard?.email) addresses.push({ email: standard.email });
  if (standard?.phone && standard.phone_valid) addresses.push({ phone: standard.phone });
  return addresses;
}
