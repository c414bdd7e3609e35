import { isLongerThan, MAX_CHARACTERS } from './characters.ts';
import type { Json } from './json.ts';
import { MAX_DEPTH } from './json-size.ts';
import { put } from './record.ts';
import { parseTime, toIso } from './time.ts';

/** Bytes of JSON of one object or array of objects: 100 KB. */
export const MAX_OBJECT_BYTES = 102_400;

const TIME = '$time';
const FORBIDDEN_IN_KEY = /[ .$]/;

/** The end of the year 3000: what lies past it is not kept as a date. */
const LATEST = Date.UTC(3001, 0, 1) - 1;

/**
 * The stored form of a value that an object attribute holds: `{"$time": "…"}` becomes ISO 8601 in UTC.
 *
 * @returns the value itself when nothing has to change; undefined when something in it cannot be taken (a
 * key that is empty, longer than 255 characters or has a space, `.` or `$`; a longer string; a `$time` that
 * is no date up to the year 3000), upon which the whole update of the attribute is dropped
 */
export function normalizeNested(value: Json, depth = 1): Json | undefined {
  if (typeof value === 'string') return isLongerThan(value, MAX_CHARACTERS) ? undefined : value;
  if (typeof value !== 'object' || value === null) return value;
  if (depth > MAX_DEPTH) return undefined;
  if (Array.isArray(value)) return normalizeArray(value, depth);
  return Object.hasOwn(value, TIME) ? normalizeDate(value) : normalizeObject(value, depth);
}

function normalizeArray(array: Json[], depth: number): Json | undefined {
  let copy: Json[] | undefined;
  for (let i = 0; i < array.length; i++) {
    const element = normalizeNested(array[i]!, depth + 1);
    if (element === undefined) return undefined;
    if (element !== array[i]) {
      copy ??= array.slice();
      copy[i] = element;
    }
  }
  return copy ?? array;
}

function normalizeObject(object: Record<string, Json>, depth: number): Json | undefined {
  let copy: Record<string, Json> | undefined;
  for (const key in object) {
    if (key === '' || isLongerThan(key, MAX_CHARACTERS) || FORBIDDEN_IN_KEY.test(key)) return undefined;
    const member = normalizeNested(object[key]!, depth + 1);
    if (member === undefined) return undefined;
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
