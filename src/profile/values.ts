import { type Json, MAX_DEPTH } from './json.ts';
import { type Refusal, refuse, withoutPositions } from './refusal.ts';

/** Maximum length of a string value, an attribute name or a property name, in characters. */
export const MAX_CHARACTERS = 255;

/** Maximum length of a sent name in an error message, in UTF-16 units. */
const MAX_QUOTED = 64;

/** Returns whether a text has more than `max` characters. An emoji outside the basic plane counts as one character. */
export function isLongerThan(text: string, max: number): boolean {
  if (text.length <= max) return false;
  if (text.length > 2 * max) return true;
  let characters = 0;
  for (const _ of text) characters++;
  return characters > max;
}

/** Returns the first 255 characters of a text, or the text itself if it is not longer. Surrogate pairs are not split. */
export function cutText(text: string): string {
  if (text.length <= MAX_CHARACTERS) return text;
  let end = 0;
  for (let characters = 0; characters < MAX_CHARACTERS && end < text.length; characters++) {
    end += text.codePointAt(end)! > 0xffff ? 2 : 1;
  }
  return end === text.length ? text : text.slice(0, end);
}

/** Shortens a sent name for an error message and removes characters that cannot be stored with a dead letter. */
export function quoted(name: string): string {
  const cut = name.length > MAX_QUOTED ? `${name.slice(0, MAX_QUOTED)}…` : name;
  return JSON.stringify(cut.toWellFormed()).slice(1, -1);
}

declare global {
  // Node 20 has both methods, but the ES2023 library does not declare them.
  interface String {
    isWellFormed(): boolean;
    toWellFormed(): string;
  }
}

/** Maximum number of keys of one object. It is far above normal use, and low enough that enumerating an object is fast. */
const MAX_KEYS = 10_000;

/** Maximum number of path elements in an error message. */
const MAX_PATH = 10;

/** A rule that a value breaks, with the path of the value: keys and indexes, innermost first. */
interface Finding {
  rule: string;
  path: (string | number)[];
}

/** Replaces an object of a request that was not parsed, because its structure breaks a rule. */
export class Unread {
  readonly rule: string;
  /** Digest of the object's text. */
  readonly digest: string;

  constructor(rule: string, digest: string) {
    this.rule = rule;
    this.digest = digest;
  }
}

/**
 * Finds a value that JSON can contain but the store cannot keep unchanged. In strings and keys: \u0000 and lone
 * surrogates. In numbers: values beyond the range of a double, and integers that have lost digits. Also objects with
 * more than 10,000 keys, and nesting deeper than 50.
 *
 * @returns the refusal with the path and the broken rule, or undefined if the value can be stored
 */
export function findUnstorable(value: Json): Refusal | undefined {
  const finding = value instanceof Unread ? findingOf(value.rule) : inspect(value, 1);
  if (!finding) return undefined;
  const path = pathText(finding.path);
  const subject = path === '' ? 'the value' : `'${path}'`;
  return refuse('unstorable', withoutPositions(path), `${subject} is not valid: ${finding.rule}`);
}

function inspect(value: Json, depth: number): Finding | undefined {
  if (typeof value === 'string') return inspectText(value, 'it');
  if (typeof value === 'number') return inspectNumber(value);
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth > MAX_DEPTH) return findingOf(`it must not nest deeper than ${MAX_DEPTH}`);
  return Array.isArray(value) ? inspectArray(value, depth) : inspectObject(value, depth);
}

function inspectArray(array: Json[], depth: number): Finding | undefined {
  for (let i = 0; i < array.length; i++) {
    const finding = inspect(array[i]!, depth + 1);
    if (finding) return at(i, finding);
  }
  return undefined;
}

function inspectObject(object: Record<string, Json>, depth: number): Finding | undefined {
  let keys = 0;
  for (const key in object) {
    if (++keys > MAX_KEYS) return findingOf(`it must not have more than ${MAX_KEYS} keys`);
    const finding = inspectText(key, 'its name') ?? inspect(object[key]!, depth + 1);
    if (finding) return at(key, finding);
  }
  return undefined;
}

function inspectText(text: string, subject: string): Finding | undefined {
  if (contains(text, '\u0000')) return findingOf(`${subject} must not contain the character \\u0000`);
  if (!isWellFormed(text)) return findingOf(`${subject} must not contain half of a surrogate pair`);
  return undefined;
}

function inspectNumber(value: number): Finding | undefined {
  const rule = brokenNumber(value);
  return rule === undefined ? undefined : findingOf(rule);
}

/** Returns the rule that a number breaks, or undefined if a double stores the number exactly. */
export function brokenNumber(value: number): string | undefined {
  if (!Number.isFinite(value)) return 'the number is too large; send it as a string';
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return 'integers beyond 9007199254740991 lose digits; send it as a string';
  }
  return undefined;
}

function findingOf(rule: string): Finding {
  return { rule, path: [] };
}

function at(part: string | number, finding: Finding): Finding {
  finding.path.push(part);
  return finding;
}

/**
 * Returns the path of a value, for example `a.b[3]`, outermost elements first. It is cut after ten elements, and empty
 * for the value itself.
 */
function pathText(path: (string | number)[]): string {
  let text = '';
  for (const part of path.reverse().slice(0, MAX_PATH)) {
    text += typeof part === 'number' ? `[${part}]` : `${text && '.'}${quoted(part)}`;
  }
  return `${text}${path.length > MAX_PATH ? '…' : ''}`;
}

/** Returns whether a value is a JSON object, neither null nor an array. */
export function isRecord(value: unknown): value is Record<string, Json> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Sets a member by a sent key. An assignment would change the prototype if the key is `__proto__`. */
export function put<Value>(record: Record<string, Value>, key: string, value: Value): void {
  if (key === '__proto__') {
    Object.defineProperty(record, key, { value, writable: true, enumerable: true, configurable: true });
  } else {
    record[key] = value;
  }
}

/** Returns whether an object has a member, without creating a list of names. */
export function hasAny(record: object): boolean {
  for (const _ in record) return true;
  return false;
}

/**
 * Reads an object. Returns undefined if the value is neither an object nor an empty array. PHP and other loosely typed
 * clients encode an empty map as `[]`, so an empty array is read as an empty object.
 */
export function asRecord(value: unknown): Record<string, Json> | undefined {
  if (isRecord(value)) return value;
  return Array.isArray(value) && value.length === 0 ? {} : undefined;
}

/** Reads each element with `asRecord`. Returns undefined if an element is not an object. */
export function asRecords(values: Json[]): Record<string, Json>[] | undefined {
  if (areRecords(values)) return values;
  const records = values.map(asRecord);
  return records.every((record) => record !== undefined) ? records : undefined;
}

/** Reads a list. Clients send a single value instead of an array, and null for an empty list. */
export function asList(value: Json | undefined): Json[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

/** Returns the elements of a list that are objects. Other values have none. */
export const recordsOf = (value: Json | undefined): Record<string, Json>[] =>
  Array.isArray(value) ? value.filter(isRecord) : [];

/** Returns whether every element is an object. */
export function areRecords(values: Json[]): values is Record<string, Json>[] {
  return values.every(isRecord);
}

/** Returns whether an object has at least one key, and only keys of the set. */
export function hasOnlyKeys(object: Record<string, Json>, keys: ReadonlySet<string>): boolean {
  let any = false;
  for (const key in object) {
    if (!keys.has(key)) return false;
    any = true;
  }
  return any;
}

/** Maximum number of elements of an array attribute. Beyond it, the oldest elements are dropped. */
export const MAX_ELEMENTS = 500;

type Scalar = string | number | boolean;

export function isScalar(value: Json | undefined): value is Scalar {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

/**
 * Maximum length of a text that is read as a number. It is longer than any number that a double can distinguish from
 * its neighbours.
 */
const MAX_NUMERIC = 40;
const NUMERIC = /^\s*[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*$/;

/**
 * Reads a number, or a text with a number such as `12.50` or `1e3`, but not `12,50` or `1,000`. Returns undefined for
 * other values, for numbers beyond the range of a double, and for integers that would lose digits.
 */
export function numberOf(value: Json | undefined): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string' || value.length > MAX_NUMERIC || !NUMERIC.test(value)) return undefined;
  const number = Number(value);
  return Number.isFinite(number) && (!Number.isInteger(number) || Number.isSafeInteger(number))
    ? number
    : undefined;
}

/**
 * Returns the elements of an array attribute after adding the values in order. Each value occurs once, at the position
 * of its last occurrence, and the latest 500 are kept. Returns the array itself if nothing changes.
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

/**
 * Cuts all strings and keys of a value to 255 characters. If two keys become equal, the last one is kept. Parts nested
 * deeper than `MAX_DEPTH` are not changed.
 *
 * @returns the value itself if nothing is longer
 */
export function cutTexts(value: Json, depth = 1): Json {
  if (typeof value === 'string') return cutText(value);
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return value;
  if (Array.isArray(value)) {
    const elements = value.map((element) => cutTexts(element, depth + 1));
    return elements.every((element, i) => element === value[i]) ? value : elements;
  }
  const members: Record<string, Json> = {};
  let same = true;
  for (const key in value) {
    const [cutKey, member] = [cutText(key), cutTexts(value[key]!, depth + 1)];
    same &&= cutKey === key && member === value[key];
    put(members, cutKey, member);
  }
  return same ? value : members;
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const UUID_IN_ANY_CASE = new RegExp(UUID, 'i');

/** Returns whether a value is an id as Postgres writes it: any 16 bytes, in lower case. */
export function isUuid(text: string): boolean;
export function isUuid(value: unknown): value is string;
export function isUuid(value: unknown): boolean {
  return typeof value === 'string' && UUID.test(value);
}

/**
 * Converts an id that a caller chose to lower case. Returns undefined if it is not a UUID. Any 16 bytes are valid, as
 * in Postgres. In contrast, `validate` of the package uuid rejects ids without a version, which is right only for ids
 * that Penstock creates.
 */
export function uuidOf(text: string): string | undefined {
  return UUID_IN_ANY_CASE.test(text) ? text.toLowerCase() : undefined;
}

/**
 * Methods of strings as functions of the string.
 *
 * V8 has several kinds of strings: flat, concatenated, sliced, internalized. Code that has met five of them looks up
 * `text.charCodeAt` for each call, which makes a loop over characters three times as slow. A bound function is known in
 * advance, so V8 compiles it into the loop, whatever the kind of string.
 */
const asFunction = Function.prototype.call;

/** Returns the UTF-16 unit at an index, or NaN after the end. */
export const codeAt = asFunction.bind(String.prototype.charCodeAt) as (text: string, index: number) => number;

/** Returns whether a text contains another one. */
const contains = asFunction.bind(String.prototype.includes) as (text: string, part: string) => boolean;

/** Returns whether a text has no lone surrogates. */
const isWellFormed = asFunction.bind(String.prototype.isWellFormed) as (text: string) => boolean;
