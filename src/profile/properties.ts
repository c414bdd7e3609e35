import { cutWarning, type LongStrings, sameWhenCut, withWarning } from './attribute-rule.ts';
import { exceedsJsonBytes, type Json } from './json.ts';
import { invalid, type Refusal, refuse } from './refusal.ts';
import { isDatetime } from './time.ts';
import { asRecord, codeAt, cutText, isLongerThan, isRecord, MAX_CHARACTERS, put, quoted } from './values.ts';

type CheckedProperties = { properties?: Record<string, Json>; warnings?: readonly string[] } | Refusal;

/** Maximum number of properties of an event or purchase. Only the first ones are kept. */
const MAX_NAMES = 256;

/** Maximum size of properties with arrays or objects, as UTF-8 JSON: 50 KB. */
export const MAX_PROPERTY_BYTES = 51_200;

/** Settings for the validation of properties. */
export interface PropertyRules {
  kind: 'events' | 'purchases';
  longStrings: LongStrings;
  /** Maximum size of properties with arrays or objects, in bytes of UTF-8 JSON. */
  maxBytes: number;
}

/** Names that would conflict with members of the event or purchase itself. */
const RESERVED = {
  events: new Set(['time', 'event_name']),
  purchases: new Set(['time', 'product_id', 'quantity', 'event_name', 'price', 'currency']),
};

const NONE: CheckedProperties = Object.freeze({});
const INVALID: CheckedProperties = Object.freeze(
  refuse('invalid', 'properties', "Invalid 'properties' field"),
);
const tooLarge = ({ maxBytes }: PropertyRules): Refusal =>
  invalid('properties', `with arrays or objects it must be at most ${maxBytes} bytes of JSON`, 'too_large');

const LONG_NAME = `a name must be at most ${MAX_CHARACTERS} characters`;
const LONG_TEXT = `a string must be at most ${MAX_CHARACTERS} characters`;

/**
 * Validates the properties of an event or purchase and converts them to their stored form. An object becomes its JSON
 * text, both as a value and as an element of an array. Dates remain strings. Null and empty properties, including `[]`,
 * count as absent.
 *
 * @returns the value itself if nothing changes, with warnings if something was cut; or an error with the property and
 * the rule
 */
export function checkProperties(sent: unknown, rules: PropertyRules): CheckedProperties {
  if (sent === undefined || sent === null) return NONE;
  const value = asRecord(sent);
  if (!value) return INVALID;
  const reserved = RESERVED[rules.kind];
  let names = 0;
  let structured = false;
  for (const name in value) {
    if (names === MAX_NAMES) return checkProperties(firstNames(value), rules);
    names++;
    if (reserved.has(name)) return INVALID;
    const property = value[name]!;
    const broken = brokenName(name) ?? (typeof property === 'string' ? brokenText(property) : undefined);
    if (broken) return cutOrRefuse(value, rules, { name, broken });
    if (typeof property === 'object' && property !== null) structured = true;
  }
  if (names === 0) return NONE;
  return structured ? checkStructured(value, rules) : { properties: value };
}

function checkStructured(value: Record<string, Json>, rules: PropertyRules): CheckedProperties {
  // Checked first, because it also limits the nesting of the values below.
  if (exceedsJsonBytes(value, rules.maxBytes)) return tooLarge(rules);
  const properties: Record<string, Json> = {};
  for (const name in value) {
    const property = value[name]!;
    if (Array.isArray(property)) {
      const broken = brokenArray(property);
      if (broken) return cutOrRefuse(value, rules, { name, broken });
    }
    put(properties, name, storedForm(property));
  }
  return { properties };
}

interface Broken {
  name: string;
  /** The broken rule. */
  broken: string;
}

/**
 * Handles the first property that breaks a rule. Long texts are cut unless the rules refuse them; all other errors
 * refuse the object.
 */
function cutOrRefuse(
  value: Record<string, Json>,
  rules: PropertyRules,
  { name, broken }: Broken,
): CheckedProperties {
  if (!isTooLong(broken) || rules.longStrings === 'refuse') return refused(name, broken);
  const sent = firstNames(value);
  // If the properties are too large as sent, they are refused even if cutting texts would make them small enough.
  if (Object.values(sent).some(isStructured) && exceedsJsonBytes(sent, rules.maxBytes))
    return tooLarge(rules);
  const { properties, warnings } = cutLong(sent);
  const checked = checkProperties(properties, { ...rules, longStrings: 'refuse' });
  return 'error' in checked ? checked : { ...checked, warnings };
}

/** Cuts names, strings and strings in arrays to 255 characters. If two names become equal, the last one is kept. */
function cutLong(value: Record<string, Json>): {
  properties: Record<string, Json>;
  warnings: readonly string[];
} {
  const properties: Record<string, Json> = {};
  let warnings: readonly string[] = [];
  for (const name in value) {
    const property = value[name]!;
    const [cutName, cut] = [cutText(name), cutStrings(property)];
    const field = `'properties.${quoted(name)}'`;
    const parts = { name: cutName !== name, value: cut !== property };
    if (parts.name || parts.value) warnings = withWarning(warnings, cutWarning(field, parts));
    if (name.length >= MAX_CHARACTERS && Object.hasOwn(properties, cutName)) {
      warnings = withWarning(warnings, sameWhenCut(field));
    }
    put(properties, cutName, cut);
  }
  return { properties, warnings };
}

/**
 * Cuts strings and strings in arrays. Objects are not cut, because they are stored as text. Returns the value itself if
 * nothing is too long.
 */
function cutStrings(value: Json): Json {
  if (typeof value === 'string') return cutText(value);
  if (!Array.isArray(value)) return value;
  const cut = value.map(cutStrings);
  return cut.some((element, i) => element !== value[i]) ? cut : value;
}

function isStructured(value: Json): boolean {
  return typeof value === 'object' && value !== null;
}

function firstNames(value: Record<string, Json>): Record<string, Json> {
  return Object.fromEntries(Object.entries(value).slice(0, MAX_NAMES));
}

function storedForm(property: Json): Json {
  if (Array.isArray(property)) return property.map(storedForm);
  return isRecord(property) ? JSON.stringify(property) : property;
}

function brokenName(name: string): string | undefined {
  if (name === '') return 'a name must not be empty';
  if (codeAt(name, 0) === 0x24) return "a name must not start with '$'";
  return isLongerThan(name, MAX_CHARACTERS) ? LONG_NAME : undefined;
}

function brokenText(text: string): string | undefined {
  return isLongerThan(text, MAX_CHARACTERS) ? LONG_TEXT : undefined;
}

/** Returns the rule that an array breaks. Nested arrays are checked. Objects are not, because they are stored as text. */
function brokenArray(array: Json[]): string | undefined {
  for (const element of array) {
    if (typeof element === 'string') {
      if (isDatetime(element)) return 'an array must not contain datetimes';
      const broken = brokenText(element);
      if (broken) return broken;
    } else if (Array.isArray(element)) {
      const broken = brokenArray(element);
      if (broken) return broken;
    }
  }
  return undefined;
}

function refused(name: string, broken: string): Refusal {
  return invalid(`properties.${quoted(name)}`, broken, isTooLong(broken) ? 'too_large' : 'invalid');
}

function isTooLong(broken: string): boolean {
  return broken === LONG_NAME || broken === LONG_TEXT;
}
