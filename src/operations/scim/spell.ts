import type { Json } from '../../profile/json.ts';
import { isLongerThan, isRecord, quoted } from '../../profile/values.ts';
import { type Attribute, allAttributes, findAttribute, isNotStored, withoutUrn } from './attributes.ts';
import { accountBudget, invalid, MAX_LIST_LENGTH, MAX_TEXT_LENGTH, type Spend, USER } from './messages.ts';

export type Member = Record<string, Json>;

/**
 * Converts attribute names of a sent resource to their canonical spelling, because names ignore case (RFC 7643 §2.1). A
 * null means that the attribute is absent (§2.5). Unknown attributes are dropped. Values of the wrong type are kept for
 * the schema to reject.
 *
 * @throws {ScimError} 400 if two members name the same attribute, or if there are more values than an account may have
 */
export function spellResource(body: Member): Member {
  return spellMembers(body, allAttributes, { path: '', spend: accountBudget() });
}

interface Spelling {
  /** Path of the object with a trailing dot. Empty for the resource. */
  path: string;
  spend: Spend;
}

function spellMembers(given: Member, among: Attribute[], { path, spend }: Spelling): Member {
  const spelled: Member = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === null) continue;
    const attribute = findAttribute(among, path === '' ? withoutUrn(name, USER) : name);
    if (!attribute) continue;
    const where = `${path}${attribute.name}`;
    if (Object.hasOwn(spelled, attribute.name))
      throw invalid(`'${where}' is not valid: it is given twice`, 'invalidSyntax');
    spelled[attribute.name] = spellAttribute(value, attribute, { path: where, spend });
  }
  return spelled;
}

function spellAttribute(value: Json, { subAttributes, multiValued }: Attribute, spelling: Spelling): Json {
  const { path: where, spend } = spelling;
  spend(1);
  if (multiValued && Array.isArray(value)) {
    spend(value.length);
    if (!subAttributes) return value;
    return value.map((one, index) =>
      isRecord(one) ? spellMembers(one, subAttributes, { path: `${where}.${index}.`, spend }) : one,
    );
  }
  return subAttributes && isRecord(value)
    ? spellMembers(value, subAttributes, { path: `${where}.`, spend })
    : value;
}

/**
 * Reads the value that a patch gives an attribute. In contrast to `spellResource`, it validates type and length
 * immediately, so that later operations get valid values only. It refuses unknown members: a misspelled name would be
 * answered with 200 and have no effect.
 *
 * @param one whether the value is one element of a list
 * @throws {ScimError} 400 with the attribute and its rule
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
    if (list.length > MAX_LIST_LENGTH)
      throw refuse(`an array of at most ${MAX_LIST_LENGTH} ${subAttributes ? 'objects' : 'strings'}`);
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
      else if (!isNotStored(withoutIndexes(`${where}.${name}`)))
        throw invalid(`'${where}' is not valid: it has no member '${quoted(name)}'`);
    }
    return spelled;
  }
  if (attribute.type === 'boolean') {
    const truth = truthOf(value);
    if (truth === undefined) throw refuse('true or false');
    return truth;
  }
  if (
    typeof value !== 'string' ||
    value === '' ||
    isLongerThan(value, MAX_TEXT_LENGTH) ||
    value.includes('\u0000')
  )
    throw refuse(`a string of 1 to ${MAX_TEXT_LENGTH} characters`);
  return value;
}

/** Removes list positions from a path, for example `emails.0.value` becomes `emails.value`. */
const withoutIndexes = (where: string) => where.replace(/\.\d+(?=\.|$)/g, '');

/** Reads a boolean. Some providers send booleans as strings. Returns undefined if the value is not a boolean. */
export function truthOf(given: Json): boolean | undefined {
  if (typeof given !== 'string' || !/^(?:true|false)$/i.test(given))
    return typeof given === 'boolean' ? given : undefined;
  return given.toLowerCase() === 'true';
}
