import type { AttributeChange, AttributesDelta } from './attributes-delta.ts';
import { isLongerThan, MAX_CHARACTERS, quoted } from './characters.ts';
import type { Json } from './json.ts';
import { exceedsJsonBytes } from './json-size.ts';
import { MAX_OBJECT_BYTES, normalizeNested } from './nested.ts';
import { OBJECT_OPERATIONS, readObjectOperations } from './object-operations.ts';
import { areRecords, hasOnlyKeys, put } from './record.ts';
import { distinctLatest, isScalar } from './scalars.ts';

const INCREMENT: ReadonlySet<string> = new Set(['inc']);
const ARRAY_OPERATIONS: ReadonlySet<string> = new Set(['add', 'remove']);

const TOO_LONG = `a string must be at most ${MAX_CHARACTERS} characters`;
const TOO_LARGE = `it must be at most ${MAX_OBJECT_BYTES} bytes of JSON`;
const MIXED = 'an array must hold strings, numbers and booleans, or only objects';

/**
 * Adds what a custom attribute changes to the delta: a value to set, or an operation on the stored value.
 * A date stays the string that was sent. An object with a value that cannot be taken changes nothing.
 *
 * @param merge whether objects merge into the stored ones instead of replacing them
 * @returns an error that names the attribute and the rule, or undefined
 */
export function addCustom(
  delta: AttributesDelta,
  name: string,
  value: Json,
  merge: boolean,
): string | undefined {
  if (name === '') return 'the name of an attribute must not be empty';
  if (isLongerThan(name, MAX_CHARACTERS)) {
    return refused(name, `the name of an attribute must be at most ${MAX_CHARACTERS} characters`);
  }
  if (typeof value === 'string' && isLongerThan(value, MAX_CHARACTERS)) return refused(name, TOO_LONG);
  if (typeof value !== 'object' || value === null) return addSet(delta, name, value);
  return Array.isArray(value) ? addArray(delta, name, value) : addObject(delta, name, value, merge);
}

function addArray(delta: AttributesDelta, name: string, array: Json[]): string | undefined {
  if (array.length > 0 && areRecords(array)) return addNested(delta, name, array, false);
  const broken = brokenScalars(array);
  return broken ? refused(name, broken) : addSet(delta, name, distinctLatest(array));
}

function addObject(
  delta: AttributesDelta,
  name: string,
  object: Record<string, Json>,
  merge: boolean,
): string | undefined {
  if (hasOnlyKeys(object, INCREMENT)) return addIncrement(delta, name, object.inc!);
  if (hasOnlyKeys(object, ARRAY_OPERATIONS)) return addArrayOperations(delta, name, object);
  if (hasOnlyKeys(object, OBJECT_OPERATIONS)) return addObjectOperations(delta, name, object, merge);
  return addNested(delta, name, object, merge);
}

function addIncrement(delta: AttributesDelta, name: string, inc: Json): string | undefined {
  if (typeof inc !== 'number' || !Number.isFinite(inc)) return refused(name, "'inc' must be a number");
  return addChange(delta, name, { inc });
}

function addArrayOperations(
  delta: AttributesDelta,
  name: string,
  operations: Record<string, Json>,
): string | undefined {
  const array: { add?: Json[]; remove?: Json[] } = {};
  for (const operation of ['add', 'remove'] as const) {
    const value = operations[operation];
    if (value === undefined) continue;
    const list = Array.isArray(value) ? value : [value];
    const broken = brokenScalars(list);
    if (broken) return refused(name, `'${operation}': ${broken}`);
    // What overflows within one addition need not travel.
    array[operation] = operation === 'add' ? distinctLatest(list) : list;
  }
  return addChange(delta, name, { array });
}

function addObjectOperations(
  delta: AttributesDelta,
  name: string,
  operations: Record<string, Json>,
  merge: boolean,
): string | undefined {
  if (exceedsJsonBytes(operations, MAX_OBJECT_BYTES)) return refused(name, TOO_LARGE);
  const read = readObjectOperations(operations, merge);
  if (read === undefined) return undefined;
  return 'broken' in read ? refused(name, read.broken) : addChange(delta, name, read.change);
}

function addNested(
  delta: AttributesDelta,
  name: string,
  value: Json[] | Record<string, Json>,
  merge: boolean,
): string | undefined {
  const nested = normalizeNested(value);
  if (nested === undefined) return undefined;
  if (exceedsJsonBytes(nested, MAX_OBJECT_BYTES)) return refused(name, TOO_LARGE);
  // A lone `$time` has become a string, which has nothing to merge.
  if (merge && typeof nested === 'object') {
    return addChange(delta, name, { merge: nested as Record<string, Json> });
  }
  return addSet(delta, name, nested);
}

function brokenScalars(values: Json[]): string | undefined {
  for (const value of values) {
    if (!isScalar(value)) return MIXED;
    if (typeof value === 'string' && isLongerThan(value, MAX_CHARACTERS)) return TOO_LONG;
  }
  return undefined;
}

function addSet(delta: AttributesDelta, name: string, value: Json): undefined {
  delta.set ??= {};
  put(delta.set, name, value);
}

function addChange(delta: AttributesDelta, name: string, change: AttributeChange): undefined {
  delta.change ??= {};
  put(delta.change, name, change);
}

function refused(name: string, broken: string): string {
  return `'${quoted(name)}' is not valid: ${broken}`;
}
