/**
 * Returns whether a JSON value contains a pattern: an object contains each member of the pattern, an array
 * contains an element for each element of the pattern, and other values must be equal.
 */
export function containsSubset(value: unknown, pattern: unknown): boolean {
  if (pattern === null || typeof pattern !== 'object') return value === pattern;
  if (value === null || typeof value !== 'object') return false;
  if (Array.isArray(pattern))
    return (
      Array.isArray(value) && pattern.every((wanted) => value.some((one) => containsSubset(one, wanted)))
    );
  return Object.entries(pattern).every(
    ([name, wanted]) =>
      Object.hasOwn(value, name) && containsSubset((value as Record<string, unknown>)[name], wanted),
  );
}
