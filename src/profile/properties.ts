import { isLongerThan, MAX_CHARACTERS, quoted } from './characters.ts';
import type { Json } from './json.ts';
import { exceedsJsonBytes } from './json-size.ts';
import { isRecord, put } from './record.ts';
import { isDatetime } from './time.ts';

export type CheckedProperties = { properties?: Record<string, Json> } | { error: string };

/** Distinct names of one event or purchase; the first ones are kept. */
const MAX_NAMES = 256;

/** Bytes of UTF-8 JSON of properties that hold arrays or objects: 50 KB. */
const MAX_BYTES = 51_200;

/** These names would hide the members of the event or purchase itself. */
const RESERVED = {
  events: new Set(['time', 'event_name']),
  purchases: new Set(['time', 'product_id', 'quantity', 'event_name', 'price', 'currency']),
};

const NONE: CheckedProperties = Object.freeze({});
const INVALID: CheckedProperties = Object.freeze({ error: "Invalid 'properties' field" });

/**
 * Checks the properties of an event or purchase and brings them to their stored form: an object becomes its
 * JSON text, as the value of a property and as an element of an array; dates stay the strings they are.
 * Null, absent and empty properties are none.
 *
 * @returns the value itself when nothing has to change, or an error that names the property and the rule
 */
export function checkProperties(value: unknown, kind: 'events' | 'purchases'): CheckedProperties {
  if (value === undefined || value === null) return NONE;
  if (!isRecord(value)) return INVALID;
  const reserved = RESERVED[kind];
  let names = 0;
  let structured = false;
  for (const name in value) {
    if (names === MAX_NAMES) return checkProperties(firstNames(value), kind);
    names++;
    if (reserved.has(name)) return INVALID;
    const property = value[name]!;
    const broken = brokenName(name) ?? (typeof property === 'string' ? brokenText(property) : undefined);
    if (broken) return refused(name, broken);
    if (typeof property === 'object' && property !== null) structured = true;
  }
  if (names === 0) return NONE;
  return structured ? checkStructured(value) : { properties: value };
}

function checkStructured(value: Record<string, Json>): CheckedProperties {
  // Looked at first: it also bounds how deep the values below nest.
  if (exceedsJsonBytes(value, MAX_BYTES)) {
    return {
      error: `'properties' is not valid: with arrays or objects it must be at most ${MAX_BYTES} bytes of JSON`,
    };
  }
  const properties: Record<string, Json> = {};
  for (const name in value) {
    const property = value[name]!;
    if (Array.isArray(property)) {
      const broken = brokenArray(property);
      if (broken) return refused(name, broken);
    }
    put(properties, name, storedForm(property));
  }
  return { properties };
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
  if (name.charCodeAt(0) === 0x24) return "a name must not start with '$'";
  return isLongerThan(name, MAX_CHARACTERS)
    ? `a name must be at most ${MAX_CHARACTERS} characters`
    : undefined;
}

function brokenText(text: string): string | undefined {
  return isLongerThan(text, MAX_CHARACTERS)
    ? `a string must be at most ${MAX_CHARACTERS} characters`
    : undefined;
}

/** What an object says is its own affair, since it is kept as text; arrays within arrays are looked into. */
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

function refused(name: string, broken: string): CheckedProperties {
  return { error: `'properties.${quoted(name)}' is not valid: ${broken}` };
}
