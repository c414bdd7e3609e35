import { expect } from 'vitest';

/**
 * Closes a gap of `toMatchObject`: where a member is expected to be an object without own keys, such as a
 * pattern or `{}`,
 * Vitest accepts any text, number or null. A pattern is treated as `expect.stringMatching`.
 */
expect.addEqualityTesters([
  function noTextIsAnObject(one: unknown, other: unknown): boolean | undefined {
    if (isMatcher(one) || isMatcher(other)) return undefined;
    if (one instanceof RegExp !== other instanceof RegExp) return false;
    return isObject(one) === isObject(other) ? undefined : false;
  },
]);

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** `expect.anything()` and the like. */
function isMatcher(value: unknown): boolean {
  return isObject(value) && 'asymmetricMatch' in value;
}
