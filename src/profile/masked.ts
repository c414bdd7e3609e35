import type { Json } from './json.ts';
import { isRecord, put, Unread } from './values.ts';

/** Replaces a value that the reader may not see. It hides the length, and whether the value is empty. */
export const MASK = '•••';

/**
 * Maximum number of names and elements of a masked value, and of nesting levels. Everything beyond is replaced by one
 * MASK.
 */
const MAX_NODES = 60;
const MAX_LEVELS = 4;

/** Maximum length of a name that is kept. */
const MAX_NAME = 64;

/** Matches an email address, or a run of digits as long as a phone number or an account number. */
const LIKE_ADDRESS = /@|(?:\d[ ()./-]*){6}/;

/** Returns a field's name, or MASK for a name that may itself be personal data, such as an email address. */
export function maskName(name: string): string {
  const isPlain = name.length <= MAX_NAME && name.isWellFormed() && !name.includes('\u0000');
  return isPlain && !LIKE_ADDRESS.test(name) ? name : MASK;
}

/**
 * Returns the shape of a value: its objects, arrays and names, with MASK in place of every string, number, boolean and
 * null. Dead letters look the same to an account without `view_pii`. The result contains no value, so deleting a user
 * leaves nothing in it to erase.
 */
export function maskValues(value: Json): Json {
  let left = MAX_NODES;
  const mask = (one: Json, level: number): Json => {
    if (typeof one !== 'object' || one === null || one instanceof Unread || level > MAX_LEVELS) return MASK;
    if (Array.isArray(one)) {
      const elements: Json[] = [];
      for (const element of one) {
        if (left-- <= 0) break;
        elements.push(mask(element, level + 1));
      }
      return elements;
    }
    const shape: Record<string, Json> = {};
    for (const name in one) {
      if (left-- <= 0) break;
      put(shape, maskName(name), mask(one[name]!, level + 1));
    }
    return shape;
  };
  return isRecord(value) || Array.isArray(value) ? mask(value, 1) : MASK;
}
