import type { Json } from '../../profile/json.ts';
import { type Attribute, allAttributes, findAttribute, withoutUrn } from './attributes.ts';
import { USER } from './messages.ts';
import { invalid } from './scim-error.ts';

export type Member = Record<string, Json>;

/**
 * A resource that a client sent, with the names of attributes as we spell them: they have no case (RFC 7643 §2.1).
 * A null is an attribute that is not there (§2.5). What we do not know stays as it is, and is passed over; what is of
 * another type than it should be is left to the schema.
 *
 * @throws {ScimError} 400 when two members name one attribute
 */
export function spellResource(body: Member): Member {
  return spellMembers(body, allAttributes, '');
}

function spellMembers(given: Member, among: Attribute[], place: string): Member {
  const spelled: Member = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === null) continue;
    const attribute = findAttribute(among, place === '' ? withoutUrn(name, USER) : name);
    const spelling = attribute?.name ?? name;
    const where = `${place}${spelling}`;
    if (Object.hasOwn(spelled, spelling))
      throw invalid(`'${where}' is not valid: it is given twice`, 'invalidSyntax');
    refuseRoles(where, value);
    // Assigned like this, a member of the name __proto__ is one like any other.
    Object.defineProperty(spelled, spelling, {
      value: attribute ? spellWithin(value, attribute, where) : value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  return spelled;
}

function spellWithin(value: Json, { subAttributes, multiValued }: Attribute, where: string): Json {
  if (!subAttributes) return value;
  if (isMember(value)) return spellMembers(value, subAttributes, `${where}.`);
  if (!multiValued || !Array.isArray(value)) return value;
  return value.map((one, index) =>
    isMember(one) ? spellMembers(one, subAttributes, `${where}.${index}.`) : one,
  );
}

/**
 * Newer services of the protocol give permissions by roles as well. We have none: passing them over would leave an
 * account with less than its provider believes.
 *
 * @param where the member, by its path
 * @throws {ScimError} 400, naming the roles
 */
export function refuseRoles(where: string, value: Json): void {
  if (where.toLowerCase() !== 'permissions.roles' || !Array.isArray(value) || value.length === 0) return;
  const names = value.map((role) => {
    const { roleName, roleId } = isMember(role) ? role : {};
    const name = [roleName, roleId].find((given) => typeof given === 'string');
    return `'${name ?? JSON.stringify(role)}'`;
  });
  throw invalid(
    `'permissions.roles' is not valid: there is no role ${names.join(', ')}; give appGroupPermissions or appGroupPermissionSets`,
  );
}

export function isMember(value: Json | undefined): value is Member {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
