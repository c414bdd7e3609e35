import type { Json } from '../../profile/json.ts';
import { isLongerThan, isRecord, quoted } from '../../profile/values.ts';
import { type Attribute, allAttributes, findAttribute, withoutUrn } from './attributes.ts';
import { accountBudget, invalid, LONGEST, MOST, type Spend, USER } from './messages.ts';

export type Member = Record<string, Json>;

/** Names that an error repeats; a list may have a hundred thousand. */
const MOST_NAMED = 10;

/**
 * A resource that a client sent, with the names of attributes as we spell them: they have no case (RFC 7643 §2.1).
 * A null is an attribute that is not there (§2.5). What we do not know is passed over; what is of another type than it
 * should be is left to the schema.
 *
 * @throws {ScimError} 400 when two members name one attribute, or there are more values than an account may have
 */
export function spellResource(body: Member): Member {
  return spellMembers(body, allAttributes, { place: '', spend: accountBudget() });
}

interface Spelling {
  /** Path of the object and a point; empty for the resource. */
  place: string;
  spend: Spend;
}

function spellMembers(given: Member, among: Attribute[], { place, spend }: Spelling): Member {
  const spelled: Member = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === null) continue;
    const attribute = findAttribute(among, place === '' ? withoutUrn(name, USER) : name);
    if (!attribute) {
      refuseRoles(place, name, value);
      continue;
    }
    const where = `${place}${attribute.name}`;
    if (Object.hasOwn(spelled, attribute.name))
      throw invalid(`'${where}' is not valid: it is given twice`, 'invalidSyntax');
    spelled[attribute.name] = spellWithin(value, attribute, { place: where, spend });
  }
  return spelled;
}

function spellWithin(value: Json, { subAttributes, multiValued }: Attribute, spelling: Spelling): Json {
  const { place: where, spend } = spelling;
  spend(1);
  if (multiValued && Array.isArray(value)) {
    spend(value.length);
    if (!subAttributes) return value;
    return value.map((one, index) =>
      isRecord(one) ? spellMembers(one, subAttributes, { place: `${where}.${index}.`, spend }) : one,
    );
  }
  return subAttributes && isRecord(value)
    ? spellMembers(value, subAttributes, { place: `${where}.`, spend })
    : value;
}

/**
 * What a patch gives an attribute: as `spellResource`, and judged at once, so that whatever a later operation meets has
 * the type and the length of its attribute.
 *
 * @param one whether it is one value of a list
 * @throws {ScimError} 400, naming the attribute and its rule
 */
export function spellValue(
  value: Json,
  attribute: Attribute,
  { where, one = false, spend }: { where: string; one?: boolean; spend: Spend },
): Json {
  spend(1);
  const { multiValued, subAttributes } = attribute;
  if (value === null && !one) return null;
  const refuse = (rule: string) => invalid(`'${where}' is not valid: it must be ${rule}`);
  if (multiValued && !one) {
    const list = Array.isArray(value) ? value : [value];
    if (list.length > MOST)
      throw refuse(`an array of at most ${MOST} ${subAttributes ? 'objects' : 'strings'}`);
    return list.map((each, index) =>
      spellValue(each, attribute, { where: `${where}.${index}`, one: true, spend }),
    );
  }
  if (subAttributes) {
    if (!isRecord(value)) throw refuse('an object');
    const spelled: Member = {};
    for (const [name, member] of Object.entries(value)) {
      const sub = findAttribute(subAttributes, name);
      if (sub) spelled[sub.name] = spellValue(member, sub, { where: `${where}.${sub.name}`, spend });
      else refuseRoles(`${where}.`, name, member);
    }
    return spelled;
  }
  if (attribute.type === 'boolean') {
    const truth = truthOf(value);
    if (truth === undefined) throw refuse('true or false');
    return truth;
  }
  if (typeof value !== 'string' || value === '' || isLongerThan(value, LONGEST) || value.includes('\u0000'))
    throw refuse(`a string of 1 to ${LONGEST} characters`);
  return value;
}

/**
 * Newer services of the protocol give permissions by roles as well. We have none: passing them over would leave an
 * account with less than its provider believes.
 *
 * @param place of the object that has the member: its path and a point
 * @throws {ScimError} 400, naming the roles
 */
export function refuseRoles(place: string, name: string, value: Json): void {
  const isRoles =
    (place === 'permissions.' && isNamed(name, 'roles')) ||
    (place === '' && isNamed(name, 'permissions.roles'));
  if (!isRoles || !Array.isArray(value) || value.length === 0) return;
  const names = value.slice(0, MOST_NAMED).map((role) => {
    const { roleName, roleId } = isRecord(role) ? role : {};
    const given = [roleName, roleId].find((one) => typeof one === 'string');
    return `'${quoted(given ?? 'of no name')}'`;
  });
  if (value.length > MOST_NAMED) names.push('…');
  throw invalid(
    `'permissions.roles' is not valid: there is no role ${names.join(', ')}; give appGroupPermissions or appGroupPermissionSets`,
  );
}

function isNamed(name: string, wanted: string): boolean {
  return name.length < LONGEST && withoutUrn(name, USER).toLowerCase() === wanted;
}

/** Some providers send booleans as texts; undefined: it is none. */
export function truthOf(given: Json): boolean | undefined {
  if (typeof given !== 'string' || !/^(?:true|false)$/i.test(given))
    return typeof given === 'boolean' ? given : undefined;
  return given.toLowerCase() === 'true';
}
