import { type AttributeChange, TOO_LONG } from './attribute-rule.ts';
import { type Json, MAX_DEPTH } from './json.ts';
import type { RejectionReason } from './refusal.ts';
import { parseTime, toIso } from './time.ts';
import { areRecords, asRecords, isLongerThan, isScalar, MAX_CHARACTERS, put } from './values.ts';

/** Maximum size of one object or array of objects as JSON: 100 KB. */
export const MAX_OBJECT_BYTES = 102_400;

const TIME = '$time';
const FORBIDDEN_IN_KEY = /[ .$]/;

/** The end of the year 3000. Later dates are not valid. */
const LATEST = Date.UTC(3001, 0, 1) - 1;

/**
 * Converts a value inside an object attribute to its stored form: `{"$time": "…"}` becomes ISO 8601 in UTC.
 *
 * @returns the value itself if nothing changes. Undefined if a part is not valid: a key that is empty or contains a
 * space, `.` or `$`, or a `$time` that is not a date up to the year 3000. The caller must then drop the whole change of
 * the attribute. TOO_LONG if a key or string has more than 255 characters
 */
export function normalizeNested(value: Json, depth = 1): Json | typeof TOO_LONG | undefined {
  if (typeof value === 'string') return isLongerThan(value, MAX_CHARACTERS) ? TOO_LONG : value;
  if (typeof value !== 'object' || value === null) return value;
  if (depth > MAX_DEPTH) return undefined;
  if (Array.isArray(value)) return normalizeArray(value, depth);
  return Object.hasOwn(value, TIME) ? normalizeDate(value) : normalizeObject(value, depth);
}

function normalizeArray(array: Json[], depth: number): Json | typeof TOO_LONG | undefined {
  let copy: Json[] | undefined;
  for (let i = 0; i < array.length; i++) {
    const element = normalizeNested(array[i]!, depth + 1);
    if (element === undefined || element === TOO_LONG) return element;
    if (element !== array[i]) {
      copy ??= array.slice();
      copy[i] = element;
    }
  }
  return copy ?? array;
}

function normalizeObject(object: Record<string, Json>, depth: number): Json | typeof TOO_LONG | undefined {
  let copy: Record<string, Json> | undefined;
  for (const key in object) {
    if (key === '' || FORBIDDEN_IN_KEY.test(key)) return undefined;
    if (isLongerThan(key, MAX_CHARACTERS)) return TOO_LONG;
    const member = normalizeNested(object[key]!, depth + 1);
    if (member === undefined || member === TOO_LONG) return member;
    if (member !== object[key]) {
      copy ??= { ...object };
      put(copy, key, member);
    }
  }
  return copy ?? object;
}

function normalizeDate(object: Record<string, Json>): Json | undefined {
  const text = object[TIME];
  if (typeof text !== 'string' || Object.keys(object).length > 1) return undefined;
  const time = parseTime(text);
  return time !== undefined && time <= LATEST ? toIso(time) : undefined;
}

type ObjectsChange = Extract<AttributeChange, { objects: unknown }>;

/** Maximum number of matches in one operation. Each is compared with every stored object. */
const MAX_MATCHES = 100;

/** The rule that an operation on an array of objects breaks. */
interface BrokenOperation {
  broken: string;
  reason: RejectionReason;
}

/** The operations on an array of objects. */
export const OBJECT_OPERATIONS: ReadonlySet<string> = new Set(['$add', '$remove', '$update']);

/**
 * Reads `$add`, `$remove` and `$update`. A single element may be sent without an array.
 *
 * @param operations must not have other keys
 * @param merge whether an update merges into the matching objects
 * @returns the change, or the rule that an operation breaks. Undefined if an object contains an invalid value; the
 * caller must then drop the change. TOO_LONG if a text has more than 255 characters
 */
export function readObjectOperations(
  operations: Record<string, Json>,
  merge: boolean,
): { change: ObjectsChange } | BrokenOperation | typeof TOO_LONG | undefined {
  const objects: ObjectsChange['objects'] = { merge };
  for (const operation in operations) {
    const value = operations[operation]!;
    const list = asRecords(Array.isArray(value) ? value : [value]);
    if (!list) return { broken: `'${operation}' must be an array of objects`, reason: 'wrong_type' };
    if (operation === '$add') {
      const added = readObjects(list);
      if (added === undefined || added === TOO_LONG) return added;
      objects.add = added;
      continue;
    }
    if (list.length > MAX_MATCHES)
      return { broken: `'${operation}' must have at most ${MAX_MATCHES} elements`, reason: 'too_many' };
    const matches = readMatches(list);
    if (matches === TOO_LONG) return TOO_LONG;
    if (!matches)
      return {
        broken: `'${operation}' needs an '$identifier_key' and an '$identifier_value'`,
        reason: 'required',
      };
    if (operation === '$remove') {
      objects.remove = matches;
      continue;
    }
    const replacements = asRecords(list.map((element) => element.$new_object ?? null));
    if (!replacements)
      return { broken: `'${operation}' needs an object as '$new_object'`, reason: 'required' };
    const replaced = readObjects(replacements);
    if (replaced === undefined || replaced === TOO_LONG) return replaced;
    objects.update = matches.map((match, i) => ({ ...match, new_object: replaced[i]! }));
  }
  return { change: { objects } };
}

/** Reads objects. Returns undefined if one contains an invalid value or is only a date. */
function readObjects(list: Json[]): Record<string, Json>[] | typeof TOO_LONG | undefined {
  const objects = normalizeNested(list);
  if (objects === TOO_LONG) return TOO_LONG;
  return Array.isArray(objects) && areRecords(objects) ? objects : undefined;
}

/**
 * Reads matches. Returns TOO_LONG for long texts, so that they are cut like the stored ones and match them. Returns
 * undefined if a key or value is missing.
 */
function readMatches(
  list: Record<string, Json>[],
): { key: string; value: Json }[] | typeof TOO_LONG | undefined {
  const matches: { key: string; value: Json }[] = [];
  for (const { $identifier_key: key, $identifier_value: value } of list) {
    if (typeof key !== 'string' || !isScalar(value)) return undefined;
    if (isLongerThan(key, MAX_CHARACTERS)) return TOO_LONG;
    if (typeof value === 'string' && isLongerThan(value, MAX_CHARACTERS)) return TOO_LONG;
    matches.push({ key, value });
  }
  return matches;
}
