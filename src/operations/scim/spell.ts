import type { Json } from '../../profile/json.ts';
import { isLongerThan, isRecord, quoted } from '../../profile/values.ts';
import { type Attribute, allAttributes, findAttribute, isNotStored, withoutUrn } from './attributes.ts';
import { accountBudget, invalid, LONGEST, MOST, type Spend, USER } from './messages.ts';

export type Member = Record<string, Json>;

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
    if (!attribute) continue;
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
 * Reads what a patch gives an attribute. As `spellResource`, but it validates at once, so that a later operation meets
 * only values with the type and the length of their attribute, and it refuses members that nobody knows: a misspelled
 * name would be answered with 200 and change nothing.
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
      else if (!isNotStored(withoutPlaces(`${where}.${name}`)))
        throw invalid(`'${where}' is not valid: it has no member '${quoted(name)}'`);
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

/** A path without the places of values in their lists: `emails.0.value` is `emails.value`. */
const withoutPlaces = (where: string) => where.replace(/\.\d+(?=\.|$)/g, '');

/** Some providers send booleans as texts; undefined: it is none. */
export function truthOf(given: Json): boolean | undefined {
  if (typeof given !== 'string' || !/^(?:true|false)$/i.test(given))
    return typeof given === 'boolean' ? given : undefined;
  return given.toLowerCase() === 'true';
}
