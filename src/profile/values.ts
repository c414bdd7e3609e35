import { type Json, MAX_DEPTH } from './json.ts';
import { type Refusal, refuse, withoutPositions } from './refusal.ts';

/** Longest string value, attribute name and property name, in characters. */
export const MAX_CHARACTERS = 255;

/** What a text of an error repeats of a caller's name, in UTF-16 units. */
const MAX_QUOTED = 64;

/** Whether a text has more than `max` characters; an emoji outside the basic plane is one character. */
export function isLongerThan(text: string, max: number): boolean {
  if (text.length <= max) return false;
  if (text.length > 2 * max) return true;
  let characters = 0;
  for (const _ of text) characters++;
  return characters > max;
}

/** The first 255 characters of a text; the text itself when it has no more. No surrogate pair is taken apart. */
export function cutText(text: string): string {
  if (text.length <= MAX_CHARACTERS) return text;
  let end = 0;
  for (let characters = 0; characters < MAX_CHARACTERS && end < text.length; characters++) {
    end += text.codePointAt(end)! > 0xffff ? 2 : 1;
  }
  return end === text.length ? text : text.slice(0, end);
}

/** A caller's name as an error repeats it: cut, and without what could not be stored with a dead letter. */
export function quoted(name: string): string {
  const cut = name.length > MAX_QUOTED ? `${name.slice(0, MAX_QUOTED)}…` : name;
  return JSON.stringify(cut.toWellFormed()).slice(1, -1);
}

declare global {
  // Node 20 has both; the ES2023 library does not declare them.
  interface String {
    isWellFormed(): boolean;
    toWellFormed(): string;
  }
}

/** Keys of one object. Far above honest use; below what makes enumerating one object noticeable. */
const MAX_KEYS = 10_000;

/** Elements of the path that an error shows. */
const MAX_PATH = 10;

/** A rule that a value breaks, and where: keys and indexes, innermost first. */
interface Finding {
  rule: string;
  path: (string | number)[];
}

/** Stands for an object of a request that was not read, since its structure breaks a rule. */
export class Unread {
  readonly rule: string;
  /** Of its text. */
  readonly digest: string;

  constructor(rule: string, digest: string) {
    this.rule = rule;
    this.digest = digest;
  }
}

/**
 * Looks for what JSON can carry but the store cannot keep as it came. In strings and keys: \u0000 and lone surrogates.
 * Of numbers: those beyond the range of a double, and integers that have lost digits already. Also objects with more
 * than 10,000 keys, and nesting deeper than 50.
 *
 * @returns the refusal with the path and the broken rule; undefined if the value can be stored
 */
export function findUnstorable(value: Json): Refusal | undefined {
  const finding = value instanceof Unread ? found(value.rule) : inspect(value, 1);
  if (!finding) return undefined;
  const path = pathText(finding.path);
  const subject = path === '' ? 'the value' : `'${path}'`;
  return refuse('unstorable', withoutPositions(path), `${subject} is not valid: ${finding.rule}`);
}

function inspect(value: Json, depth: number): Finding | undefined {
  if (typeof value === 'string') return inspectText(value, 'it');
  if (typeof value === 'number') return inspectNumber(value);
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth > MAX_DEPTH) return found(`it must not nest deeper than ${MAX_DEPTH}`);
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
    if (++keys > MAX_KEYS) return found(`it must not have more than ${MAX_KEYS} keys`);
    const finding = inspectText(key, 'its name') ?? inspect(object[key]!, depth + 1);
    if (finding) return at(key, finding);
  }
  return undefined;
}

function inspectText(text: string, subject: string): Finding | undefined {
  if (contains(text, '\u0000')) return found(`${subject} must not contain the character \\u0000`);
  if (!isWellFormed(text)) return found(`${subject} must not contain half of a surrogate pair`);
  return undefined;
}

function inspectNumber(value: number): Finding | undefined {
  const rule = brokenNumber(value);
  return rule === undefined ? undefined : found(rule);
}

/** The rule that a number breaks; undefined when a double stores the number exactly. */
export function brokenNumber(value: number): string | undefined {
  if (!Number.isFinite(value)) return 'the number is too large; send it as a string';
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return 'integers beyond 9007199254740991 lose digits; send it as a string';
  }
  return undefined;
}

function found(rule: string): Finding {
  return { rule, path: [] };
}

function at(place: string | number, finding: Finding): Finding {
  finding.path.push(place);
  return finding;
}

/** Returns the path of a value, `a.b[3]`, outermost elements first and cut after ten elements; empty for the value itself. */
function pathText(path: (string | number)[]): string {
  let text = '';
  for (const place of path.reverse().slice(0, MAX_PATH)) {
    text += typeof place === 'number' ? `[${place}]` : `${text && '.'}${quoted(place)}`;
  }
  return `${text}${path.length > MAX_PATH ? '…' : ''}`;
}

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

/** Whether an object has a member: without a list of their names. */
export function hasAny(record: object): boolean {
  for (const _ in record) return true;
  return false;
}

/**
 * The object that a value stands for; undefined when the value is neither an object nor an empty array. PHP and other
 * loosely typed clients write an empty map as `[]`, so an empty array where an object is meant is the empty object.
 */
export function asRecord(value: unknown): Record<string, Json> | undefined {
  if (isRecord(value)) return value;
  return Array.isArray(value) && value.length === 0 ? {} : undefined;
}

/** The objects of a list, each read by `asRecord`; undefined when an element is no object. */
export function asRecords(values: Json[]): Record<string, Json>[] | undefined {
  if (areRecords(values)) return values;
  const records = values.map(asRecord);
  return records.every((record) => record !== undefined) ? records : undefined;
}

/** Clients send one value where an array is meant, and null for none. */
export function asList(value: Json | undefined): Json[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

/** The objects of a list; of what is none, nothing. */
export const recordsOf = (value: Json | undefined): Record<string, Json>[] =>
  Array.isArray(value) ? value.filter(isRecord) : [];

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

/** Elements of an array attribute; past it the oldest ones are dropped. */
export const MAX_ELEMENTS = 500;

type Scalar = string | number | boolean;

export function isScalar(value: Json | undefined): value is Scalar {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

/** Characters of a text that is read as a number: more than any number that a double tells from its neighbours has. */
const MAX_NUMERIC = 40;
const NUMERIC = /^\s*[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*$/;

/**
 * A number, or the one that a text is: `12.50` and `1e3`, neither `12,50` nor `1,000`. Undefined for anything else,
 * also for a number past the range of a double or an integer that would lose digits.
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

/**
 * A value whose strings and keys have at most 255 characters: of longer ones the first 255. Of two keys that are the
 * same then, the last one counts. What nests deeper than `MAX_DEPTH` is left as it is.
 *
 * @returns the value itself when nothing in it is longer
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

/** Whether a value is an id as Postgres writes one: any sixteen bytes, in lower case. */
export function isUuid(text: string): boolean;
export function isUuid(value: unknown): value is string;
export function isUuid(value: unknown): boolean {
  return typeof value === 'string' && UUID.test(value);
}

/**
 * An id that a caller chose, in lower case, or undefined when it is no UUID. Any sixteen bytes are one, as in Postgres:
 * `validate` of uuid refuses those of no version, which is right for ids that are ours alone.
 */
export function uuidOf(text: string): string | undefined {
  return UUID_IN_ANY_CASE.test(text) ? text.toLowerCase() : undefined;
}

/**
 * Methods of strings as functions of the string.
 *
 * Strings are of many kinds in V8: flat, joined, cut out of another, the name of a member. Code that has met five of them
 * looks `text.charCodeAt` up anew for each call, which takes three times as long as a loop over characters does without. A
 * function that it knows beforehand it compiles into the loop, whatever the string.
 */
const asFunction = Function.prototype.call;

/** The UTF-16 unit at a place; NaN behind the end. */
export const codeAt = asFunction.bind(String.prototype.charCodeAt) as (text: string, place: number) => number;

/** Whether a text contains another. */
const contains = asFunction.bind(String.prototype.includes) as (text: string, part: string) => boolean;

/** Whether a text has no half of a surrogate pair. */
const isWellFormed = asFunction.bind(String.prototype.isWellFormed) as (text: string) => boolean;
