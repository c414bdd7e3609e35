import type { Json } from './json.ts';

/** Elements of an array attribute; past it the oldest ones are dropped. */
export const MAX_ELEMENTS = 500;

export type Scalar = string | number | boolean;

export function isScalar(value: Json | undefined): value is Scalar {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

/**
 * The elements of an array attribute after these were added in order: each once, in the place of its last
 * occurrence, and the newest 500. Returns the array itself when it is so already.
 */
export function distinctLatest(values: Json[]): Json[] {
  const distinct = new Set(values);
  if (distinct.size === values.length) {
    return values.length <= MAX_ELEMENTS ? values : values.slice(-MAX_ELEMENTS);
  }
  distinct.clear();
  for (const value of values) {
    distinct.delete(value);
    distinct.add(value);
  }
  return [...distinct].slice(-MAX_ELEMENTS);
}
