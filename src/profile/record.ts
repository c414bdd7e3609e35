import type { Json } from './json.ts';

/** Whether a value is a JSON object, neither null nor an array. */
export function isRecord(value: unknown): value is Record<string, Json> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Writes a caller's key. An assignment makes every key an own property but one: `__proto__` would change the
 * prototype instead.
 */
export function put<Value>(record: Record<string, Value>, key: string, value: Value): void {
  if (key === '__proto__') {
    Object.defineProperty(record, key, { value, writable: true, enumerable: true, configurable: true });
  } else {
    record[key] = value;
  }
}

/** Whether every element is an object. */
export function areRecords(values: Json[]): values is Record<string, Json>[] {
  return values.every(isRecord);
}

/** Whether an object has at least one key, and none outside the set. */
export function hasOnlyKeys(object: Record<string, Json>, keys: ReadonlySet<string>): boolean {
  let any = false;
  for (const key in object) {
    if (!keys.has(key)) return false;
    any = true;
  }
  return any;
}
