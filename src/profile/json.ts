/** Any parsed JSON value. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** An object as its JSON text, so that code that only forwards it need not parse and serialize it. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toJSON(): Json {
    return JSON.parse(this.text);
  }
}

/** Parses a text as JSON. Returns undefined if it is not JSON. */
export function parsedJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** Parses a text as JSON. Returns the text itself if it is not JSON. */
export function parsedOrText(text: string): Json {
  const parsed = parsedJson(text);
  return parsed === undefined ? text : parsed;
}

/** Maximum nesting of objects and arrays, including the outermost one. */
export const MAX_DEPTH = 50;

/** Maximum bytes per UTF-16 unit: a control character takes six as \u001f, all others at most three. */
const BYTES_PER_UNIT = 6;
/** Length of -2.2250738585072014e-308. */
const BYTES_PER_NUMBER = 24;

/**
 * Returns whether the JSON text of a value has more than `limit` bytes of UTF-8. A value nested deeper than `MAX_DEPTH`
 * exceeds every limit, because serializing it could overflow the stack.
 */
export function exceedsJsonBytes(value: Json, limit: number): boolean {
  const estimate = maxBytesOf(value, 1);
  // Most values are so small that the estimate is sufficient.
  if (estimate <= limit) return false;
  return estimate === Number.POSITIVE_INFINITY || Buffer.byteLength(JSON.stringify(value)) > limit;
}

function maxBytesOf(value: Json, depth: number): number {
  if (typeof value === 'string') return value.length * BYTES_PER_UNIT + 2;
  if (typeof value !== 'object' || value === null) return BYTES_PER_NUMBER;
  if (depth > MAX_DEPTH) return Number.POSITIVE_INFINITY;
  let bytes = 2;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) bytes += maxBytesOf(value[i]!, depth + 1) + 1;
    return bytes;
  }
  for (const key in value) bytes += key.length * BYTES_PER_UNIT + 4 + maxBytesOf(value[key]!, depth + 1);
  return bytes;
}

/** Returns a lower bound for the bytes of a value's JSON text. The value must not nest deeper than `MAX_DEPTH`. */
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

/** Printable ASCII without characters that JSON escapes. Such a text has as many bytes as characters. */
const PLAIN = /^[ !#-[\]-~]*$/;

/** The range of numbers that JavaScript writes without an exponent. The store writes all numbers without an exponent. */
const LARGEST_PLAIN = 1e21;
const SMALLEST_PLAIN = 1e-6;
const MAX_DIGITS = 17;

/**
 * Returns the bytes of a value's JSON text without white space. Numbers count as the store writes them, without an
 * exponent. The value must not nest deeper than `MAX_DEPTH`.
 */
function jsonBytes(value: Json): number {
  if (typeof value === 'string') return textBytes(value);
  if (typeof value === 'number') return numberBytes(value);
  if (typeof value !== 'object' || value === null) return value === false ? 5 : 4;
  let bytes = 1;
  if (Array.isArray(value)) {
    for (const element of value) bytes += jsonBytes(element) + 1;
    return Math.max(2, bytes);
  }
  for (const key in value) bytes += memberBytes(key, value[key]!) + 1;
  return Math.max(2, bytes);
}

/** Returns the bytes of a member of an object, counted like `jsonBytes`, without a comma. */
export function memberBytes(key: string, value: Json): number {
  return textBytes(key) + 1 + jsonBytes(value);
}

/** Returns the bytes of a string as JSON, including its quotes. */
function textBytes(text: string): number {
  return PLAIN.test(text) ? text.length + 2 : Buffer.byteLength(JSON.stringify(text));
}

function numberBytes(value: number): number {
  const size = Math.abs(value);
  if (size === 0 || (size >= SMALLEST_PLAIN && size < LARGEST_PLAIN)) return String(value).length;
  return Math.ceil(Math.abs(Math.log10(size))) + MAX_DIGITS;
}

/** Size of a value in bytes in two forms, without a name or a comma. */
export interface Size {
  /** Size of the JSON text. */
  json: number;
  /** Size in the store; see `storedBytes`. */
  stored: number;
}

export function sizeOf(value: Json): Size {
  return { json: jsonBytes(value), stored: storedBytes(value) };
}

/** Overhead of each value and each name in the store. */
const ENTRY = 4;
const CONTAINER = ENTRY + 4;
/** Size of a number with few digits. Other numbers take up to twice as much. */
const NUMBER = ENTRY + 8;

/**
 * Returns the bytes of a value as uncompressed jsonb, which Postgres decodes and encodes at each change. The result is
 * rarely larger than the size in Postgres, which adds at most 3 bytes of alignment to each number and object. The value
 * must not nest deeper than `MAX_DEPTH`.
 */
export function storedBytes(value: Json): number {
  if (typeof value === 'string') return ENTRY + Buffer.byteLength(value);
  if (typeof value === 'number') return NUMBER;
  if (typeof value !== 'object' || value === null) return ENTRY;
  let bytes = CONTAINER;
  if (Array.isArray(value)) {
    for (const element of value) bytes += storedBytes(element);
    return bytes;
  }
  for (const key in value) bytes += storedNameBytes(key) + storedBytes(value[key]!);
  return bytes;
}

/** Returns the stored bytes of a member's name. */
export function storedNameBytes(name: string): number {
  return ENTRY + Buffer.byteLength(name);
}

/**
 * Maximum number of members that are sorted. Objects with more members are not sorted, because that would take too
 * long; their order then makes a difference.
 */
const MAX_SORTED = 1000;

/** Approximate characters per piece. This limits both the number of pieces and the length of the strings. */
const PIECE = 65_536;

/** Markers for the ends of arrays and objects on the stack. */
const ARRAY_END = Symbol(']');
const OBJECT_END = Symbol('}');

/** The name of a member on the stack. */
class Name {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/**
 * Generates a canonical text of a JSON value in pieces. Two values have the same text only if they are equal,
 * regardless of the order of members (for objects of at most MAX_SORTED members). Each value has a leading comma. The
 * function iterates, because a body may be nested as deeply as it is long.
 */
export function* canonicalPieces(value: Json): Generator<string> {
  const stack: (Json | Name | symbol)[] = [value];
  let piece = '';
  while (stack.length > 0) {
    const next = stack.pop()!;
    if (next === ARRAY_END) piece += ']';
    else if (next === OBJECT_END) piece += '}';
    else if (next instanceof Name) piece += JSON.stringify(next.text);
    else if (typeof next !== 'object' || next === null) piece += `,${JSON.stringify(next)}`;
    else if (Array.isArray(next)) {
      piece += ',[';
      stack.push(ARRAY_END);
      for (let index = next.length - 1; index >= 0; index--) stack.push(next[index]!);
    } else {
      piece += ',{';
      stack.push(OBJECT_END);
      const names = Object.keys(next);
      if (names.length <= MAX_SORTED) names.sort();
      for (let index = names.length - 1; index >= 0; index--)
        stack.push(next[names[index]!]!, new Name(names[index]!));
    }
    if (piece.length < PIECE) continue;
    yield piece;
    piece = '';
  }
  yield piece;
}

/** Returns the canonical text of a small value. */
export function canonicalText(value: Json): string {
  return [...canonicalPieces(value)].join('');
}

/** Sizes by slot, stored in two arrays. An object for each size would dominate the memory of a long array. */
export class Sizes {
  #json: number[] = [];
  #stored: number[] = [];

  of(slot: number): Size {
    return { json: this.#json[slot]!, stored: this.#stored[slot]! };
  }

  put(slot: number, { json, stored }: Size): void {
    this.#json[slot] = json;
    this.#stored[slot] = stored;
  }

  /**
   * Appends the size of an element.
   * @param sum increased by this size
   */
  push(element: Json, sum: Size): void {
    const [json, stored] = [jsonBytes(element), storedBytes(element)];
    this.#json.push(json);
    this.#stored.push(stored);
    sum.json += json;
    sum.stored += stored;
  }

  cut(length: number): void {
    this.#json.length = length;
    this.#stored.length = length;
  }

  where(isKept: (slot: number) => boolean): Sizes {
    const kept = new Sizes();
    kept.#json = this.#json.filter((_, slot) => isKept(slot));
    kept.#stored = this.#stored.filter((_, slot) => isKept(slot));
    return kept;
  }
}
