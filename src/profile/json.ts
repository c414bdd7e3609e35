/** Any parsed JSON value. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** An object that travels as its JSON text: who only hands it on need not take it apart, and put it together again. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toJSON(): Json {
    return JSON.parse(this.text);
  }
}

/** What a text is as JSON; undefined: it is none. */
export function parsedJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** What a text is as JSON, or else the text itself. */
export function parsedOrText(text: string): Json {
  const parsed = parsedJson(text);
  return parsed === undefined ? text : parsed;
}

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

/** Printable ASCII without what JSON escapes: its bytes are its characters. */
const PLAIN = /^[ !#-[\]-~]*$/;

/** Numbers that JavaScript writes with an exponent, and the store with all their digits. */
const LARGEST_PLAIN = 1e21;
const SMALLEST_PLAIN = 1e-6;
const MOST_DIGITS = 17;

/**
 * Bytes of a value's JSON text without white space, its numbers as the store writes them: without an exponent. The
 * value nests no deeper than `MAX_DEPTH`.
 */
export function jsonBytes(value: Json): number {
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

/** Bytes of a member of an object, as `jsonBytes` counts them, without a comma. */
export function memberBytes(key: string, value: Json): number {
  return textBytes(key) + 1 + jsonBytes(value);
}

/** Bytes of a string as JSON, with its quotes. */
function textBytes(text: string): number {
  return PLAIN.test(text) ? text.length + 2 : Buffer.byteLength(JSON.stringify(text));
}

function numberBytes(value: number): number {
  const size = Math.abs(value);
  if (size === 0 || (size >= SMALLEST_PLAIN && size < LARGEST_PLAIN)) return String(value).length;
  return Math.ceil(Math.abs(Math.log10(size))) + MOST_DIGITS;
}

/** Bytes that a value takes in two forms, each without a name or a comma. */
export interface Size {
  /** Of its JSON text. */
  json: number;
  /** In the store: see `storedBytes`. */
  stored: number;
}

export function sizeOf(value: Json): Size {
  return { json: jsonBytes(value), stored: storedBytes(value) };
}

/** What each value and each name takes in the store beside its contents. */
const ENTRY = 4;
const CONTAINER = ENTRY + 4;
/** Of one with few digits: others take up to as much again. */
const NUMBER = ENTRY + 8;

/**
 * Bytes that a value takes as jsonb, uncompressed: what Postgres takes apart and puts together at each change. Hardly
 * ever more than Postgres says, which aligns numbers and objects: at most 3 bytes for each. The value nests no deeper than
 * `MAX_DEPTH`.
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

/** What the name of a member takes beside its value. */
export function storedNameBytes(name: string): number {
  return ENTRY + Buffer.byteLength(name);
}

/** Members of an object up to which their order makes no difference: sorting more would take its time. */
const MOST_SORTED = 1000;

/** Characters of a piece, about: few pieces, and no string as long as a body. */
const PIECE = 65_536;

/** Ends of arrays and objects on the stack. */
const ARRAY_END = Symbol(']');
const OBJECT_END = Symbol('}');

/** A member's name on the stack. */
class Name {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/**
 * A JSON value as text, in pieces: the same for values that say the same, whatever the order of members, and for no
 * others. A comma stands before every value. Without recursion, since a body may be nested as deep as it is long.
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
      if (names.length <= MOST_SORTED) names.sort();
      for (let index = names.length - 1; index >= 0; index--)
        stack.push(next[names[index]!]!, new Name(names[index]!));
    }
    if (piece.length < PIECE) continue;
    yield piece;
    piece = '';
  }
  yield piece;
}

/** The same in one piece, for what is known to be small. */
export function canonicalText(value: Json): string {
  return [...canonicalPieces(value)].join('');
}

/** Sizes by slot, in columns: an object for each would be most of what a long array costs. */
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

  /** @param sum gets what the element takes */
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
