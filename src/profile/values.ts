import { quoted } from './characters.ts';
import type { Json } from './json.ts';
import { MAX_DEPTH } from './json-size.ts';

/** Keys of one object. Far above honest use; below what makes enumerating one object noticeable. */
const MAX_KEYS = 10_000;

/** Elements of the path that an error shows. */
const MAX_PATH = 10;

/** A rule that a value breaks, and where: keys and indexes, innermost first. */
interface Finding {
  rule: string;
  path: (string | number)[];
}

/**
 * Looks for what JSON can carry but the store cannot keep as it came: \u0000 and lone surrogates in strings
 * and keys, numbers beyond the range of a double, integers that have lost digits already, objects with more
 * than 10,000 keys, nesting deeper than 50.
 *
 * @returns the path and the rule that is broken, or undefined when the value can be stored
 */
export function findUnstorable(value: Json): string | undefined {
  const finding = inspect(value, 1);
  return finding && `${pathText(finding.path)} is not valid: ${finding.rule}`;
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
  if (text.includes('\u0000')) return found(`${subject} must not contain the character \\u0000`);
  if (!text.isWellFormed()) return found(`${subject} must not contain half of a surrogate pair`);
  return undefined;
}

function inspectNumber(value: number): Finding | undefined {
  if (!Number.isFinite(value)) return found('the number is too large; send it as a string');
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return found('integers beyond 9007199254740991 lose digits; send it as a string');
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

/** `'a.b[3]'`, its outermost elements first and no more than a reader needs. */
function pathText(path: (string | number)[]): string {
  if (path.length === 0) return 'the value';
  let text = '';
  for (const place of path.reverse().slice(0, MAX_PATH)) {
    text += typeof place === 'number' ? `[${place}]` : `${text && '.'}${quoted(place)}`;
  }
  return `'${text}${path.length > MAX_PATH ? '…' : ''}'`;
}
