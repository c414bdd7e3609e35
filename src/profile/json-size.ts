import type { Json } from './json.ts';

/** How deep objects and arrays may nest, the outermost one included. */
export const MAX_DEPTH = 50;

/** A control character takes six bytes, as \u001f; any other UTF-16 unit takes at most three. */
const BYTES_PER_UNIT = 6;
/** -2.2250738585072014e-308 */
const BYTES_PER_NUMBER = 24;

/**
 * Whether the JSON text of a value has more than `limit` bytes of UTF-8. What nests deeper than `MAX_DEPTH`
 * exceeds every limit, since writing it could overflow the stack.
 */
export function exceedsJsonBytes(value: Json, limit: number): boolean {
  const most = bytesAtMost(value, 1);
  // Nearly every value is so small that the estimate decides.
  if (most <= limit) return false;
  return most === Number.POSITIVE_INFINITY || Buffer.byteLength(JSON.stringify(value)) > limit;
}

function bytesAtMost(value: Json, depth: number): number {
  if (typeof value === 'string') return value.length * BYTES_PER_UNIT + 2;
  if (typeof value !== 'object' || value === null) return BYTES_PER_NUMBER;
  if (depth > MAX_DEPTH) return Number.POSITIVE_INFINITY;
  let bytes = 2;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) bytes += bytesAtMost(value[i]!, depth + 1) + 1;
    return bytes;
  }
  for (const key in value) bytes += key.length * BYTES_PER_UNIT + 4 + bytesAtMost(value[key]!, depth + 1);
  return bytes;
}

/** A lower bound of the bytes of a value's JSON text; the value nests no deeper than `MAX_DEPTH`. */
export function jsonBytesAtLeast(value: Json): number {
  if (typeof value === 'string') return value.length + 2;
  if (typeof value !== 'object' || value === null) return 1;
  let bytes = 2;
  if (Array.isArray(value)) {
    for (const element of value) bytes += jsonBytesAtLeast(element) + 1;
    return bytes - 1;
  }
  for (const key in value) bytes += key.length + 4 + jsonBytesAtLeast(value[key]!);
  return bytes - 1;
}
