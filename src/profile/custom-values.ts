import {
  type AttributeChange,
  type AttributesDelta,
  type Finding,
  sameWhenCut,
  TOO_LONG,
} from './attribute-rule.ts';
import { exceedsJsonBytes, type Json, storedBytes, storedNameBytes } from './json.ts';
import { MAX_OBJECT_BYTES, normalizeNested, OBJECT_OPERATIONS, readObjectOperations } from './nested.ts';
import { invalid, type RejectionReason, refuse } from './refusal.ts';
import {
  asRecords,
  distinctLatest,
  hasOnlyKeys,
  isLongerThan,
  isRecord,
  isScalar,
  MAX_CHARACTERS,
  put,
  quoted,
} from './values.ts';

const INCREMENT: ReadonlySet<string> = new Set(['inc']);
const ARRAY_OPERATIONS: ReadonlySet<string> = new Set(['add', 'remove']);

const TOO_LARGE = `it must be at most ${MAX_OBJECT_BYTES} bytes of JSON`;
const MIXED = 'an array must hold strings, numbers and booleans, or only objects';

const DROPPED =
  "it was omitted: a key in it is empty or has a space, '.' or '$', or a '$time' in it is no date up to the year 3000";

type Added = Finding | typeof TOO_LONG | undefined;

/**
 * Adds the changes of a custom attribute to the delta: a value to set, or an operation on the stored value. A date is
 * kept as the string that was sent. An object with an invalid value changes nothing.
 *
 * @returns an error or a warning with the attribute and the rule. TOO_LONG if the name or a string in the value has
 * more than 255 characters; then nothing was added. Undefined if the value was accepted without a change
 */
export type AddCustom = (delta: AttributesDelta, name: string, value: Json) => Added;

/** Replaces stored objects. */
export const addCustom = createAddCustom({ merge: false });

/** Merges into stored objects. */
export const mergeCustom = createAddCustom({ merge: true });

/** Creates the functions once, when the module is loaded, so that adding an attribute creates no closure. */
function createAddCustom({ merge }: { merge: boolean }): AddCustom {
  function addArray(delta: AttributesDelta, name: string, array: Json[]): Added {
    const records = array.length > 0 ? asRecords(array) : undefined;
    if (records) return addNested(delta, name, records);
    const broken = brokenScalars(array);
    if (broken === TOO_LONG) return TOO_LONG;
    return broken ? refused(name, 'wrong_type', broken) : addSet(delta, name, distinctLatest(array));
  }

  function addObject(delta: AttributesDelta, name: string, object: Record<string, Json>): Added {
    if (hasOnlyKeys(object, INCREMENT)) return addIncrement(delta, name, object.inc!);
    if (hasOnlyKeys(object, ARRAY_OPERATIONS)) return addArrayOperations(delta, name, object);
    if (hasOnlyKeys(object, OBJECT_OPERATIONS)) return addObjectOperations(delta, name, object);
    return addNested(delta, name, object);
  }

  function addObjectOperations(
    delta: AttributesDelta,
    name: string,
    operations: Record<string, Json>,
  ): Added {
    if (exceedsJsonBytes(operations, MAX_OBJECT_BYTES)) return refused(name, 'too_large', TOO_LARGE);
    const read = readObjectOperations(operations, merge);
    if (read === TOO_LONG) return TOO_LONG;
    if (read === undefined) return dropped(name);
    return 'broken' in read ? refused(name, read.reason, read.broken) : addChange(delta, name, read.change);
  }

  function addNested(delta: AttributesDelta, name: string, value: Json[] | Record<string, Json>): Added {
    const nested = normalizeNested(value);
    if (nested === undefined) return dropped(name);
    // If the value is too large as sent, it is refused even if cutting its texts would make it small enough.
    if (exceedsJsonBytes(nested === TOO_LONG ? value : nested, MAX_OBJECT_BYTES))
      return refused(name, 'too_large', TOO_LARGE);
    if (nested === TOO_LONG) return TOO_LONG;
    // Arrays cannot be merged, and a value that is only a `$time` has become a string.
    if (merge && isRecord(nested)) return addChange(delta, name, { merge: nested });
    return addSet(delta, name, nested);
  }

  return function add(delta, name, value) {
    if (name === '') return refuse('invalid', '', 'the name of an attribute must not be empty');
    if (isLongerThan(name, MAX_CHARACTERS)) return TOO_LONG;
    if (typeof value === 'string' && isLongerThan(value, MAX_CHARACTERS)) return TOO_LONG;
    if (typeof value !== 'object' || value === null) return addSet(delta, name, value);
    return Array.isArray(value) ? addArray(delta, name, value) : addObject(delta, name, value);
  };
}

function addIncrement(delta: AttributesDelta, name: string, inc: Json): Added {
  if (typeof inc !== 'number' || !Number.isFinite(inc))
    return refused(name, 'wrong_type', "'inc' must be a number");
  return addChange(delta, name, { inc });
}

function addArrayOperations(delta: AttributesDelta, name: string, operations: Record<string, Json>): Added {
  const array: { add?: Json[]; remove?: Json[] } = {};
  for (const operation of ['add', 'remove'] as const) {
    const value = operations[operation];
    if (value === undefined) continue;
    const list = Array.isArray(value) ? value : [value];
    const broken = brokenScalars(list);
    if (broken === TOO_LONG) return TOO_LONG;
    if (broken) return refused(name, 'wrong_type', `'${operation}': ${broken}`);
    // Elements that overflow within one addition need not be sent to the worker.
    array[operation] = operation === 'add' ? distinctLatest(list) : list;
  }
  return addChange(delta, name, { array });
}

function brokenScalars(values: Json[]): string | typeof TOO_LONG | undefined {
  for (const value of values) {
    if (!isScalar(value)) return MIXED;
    if (typeof value === 'string' && isLongerThan(value, MAX_CHARACTERS)) return TOO_LONG;
  }
  return undefined;
}

function addSet(delta: AttributesDelta, name: string, value: Json): Finding | undefined {
  const warning = name.length < MAX_CHARACTERS ? undefined : removeSameName(delta, name);
  delta.set ??= {};
  put(delta.set, name, value);
  return warning;
}

function addChange(delta: AttributesDelta, name: string, change: AttributeChange): Finding | undefined {
  const warning = name.length < MAX_CHARACTERS ? undefined : removeSameName(delta, name);
  delta.change ??= {};
  put(delta.change, name, change);
  return warning;
}

/**
 * Removes an earlier attribute of the object with the same cut name. The last one is kept, as with duplicate keys in
 * JSON.
 */
function removeSameName({ set = {}, change = {} }: AttributesDelta, name: string): Finding | undefined {
  if (!Object.hasOwn(set, name) && !Object.hasOwn(change, name)) return undefined;
  delete set[name];
  delete change[name];
  return { warning: sameWhenCut(`'${quoted(name)}'`) };
}

function refused(name: string, reason: RejectionReason, broken: string): Finding {
  return invalid(quoted(name), broken, reason);
}

function dropped(name: string): Finding {
  return { warning: `'${quoted(name)}' is not valid: ${DROPPED}` };
}

/**
 * Maximum size of all custom attributes of one profile as stored: 256 KB. Each change of an attribute reads and writes
 * all of them.
 */
export const MAX_CUSTOM_BYTES = 262_144;

/** How the size is counted, for error messages. */
export const COUNTED = `limit ${MAX_CUSTOM_BYTES} bytes. Send fewer or shorter attributes. A name or text counts with its length in UTF-8 plus 4, a number with 12, an object or array with 8`;

/** Returns the stored size of custom attributes with their names, in bytes. Null values count 0. */
export function customBytes(attributes: Record<string, Json>): number {
  let bytes = 0;
  for (const name in attributes) bytes += attributeBytes(name, attributes[name]!);
  return bytes;
}

/** Returns the stored size of one custom attribute with its name, in bytes. */
export function attributeBytes(name: string, value: Json): number {
  return value === null ? 0 : storedNameBytes(name) + storedBytes(value);
}
