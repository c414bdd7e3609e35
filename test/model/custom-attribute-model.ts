import type { AttributeChange } from '../../src/profile/attribute-rule.ts';
import { exceedsJsonBytes, type Json } from '../../src/profile/json.ts';
import { MAX_OBJECT_BYTES } from '../../src/profile/nested.ts';
import { distinctLatest, isRecord, put } from '../../src/profile/values.ts';

type Objects = Extract<AttributeChange, { objects: unknown }>['objects'];
type Match = { key: string; value: Json };

/**
 * Applies a change to the value of a custom attribute by the plain rules: each change separately and on the
 * whole value. The
 * drafts of the worker are compared with this.
 * The stored value is not modified. A stored value of a different kind counts as missing; removing from it
 * and updating in it
 * have no effect. A change that would enlarge an object or an array of objects beyond 100 KB, or an integer
 * beyond 2^53 - 1,
 * has no effect.
 * @param current the stored value, undefined if there is none
 * @returns the new value, undefined if there is none
 */
export function changedPlainly(current: Json | undefined, change: AttributeChange): Json | undefined {
  if ('inc' in change) {
    const sum = (typeof current === 'number' ? current : 0) + change.inc;
    return Number.isFinite(sum) && (!Number.isInteger(sum) || Number.isSafeInteger(sum)) ? sum : current;
  }
  if ('array' in change) return changeElements(current, change.array);
  const changed =
    'merge' in change ? mergeInto(current, change.merge, 'remove') : changeObjects(current, change.objects);
  return changed === undefined || exceedsJsonBytes(changed, MAX_OBJECT_BYTES) ? current : changed;
}

function changeElements(
  current: Json | undefined,
  { add, remove }: { add?: Json[]; remove?: Json[] },
): Json | undefined {
  if (!Array.isArray(current) && !add?.length) return current;
  let elements = Array.isArray(current) ? current : [];
  if (add) elements = distinctLatest(elements.concat(add));
  if (!remove) return elements;
  const removed = new Set(remove);
  return elements.filter((element) => !removed.has(element));
}

/** Merges objects and replaces other values; null removes a key, as in RFC 7396, or keeps it. */
function mergeInto(
  current: Json | undefined,
  patch: Record<string, Json>,
  onNull: 'remove' | 'keep',
): Record<string, Json> {
  const merged = isRecord(current) ? { ...current } : {};
  for (const key in patch) {
    const value = patch[key]!;
    if (value !== null) {
      put(merged, key, isRecord(value) ? mergeInto(ownMember(merged, key), value, onNull) : value);
    } else if (onNull === 'remove') delete merged[key];
  }
  return merged;
}

/** An update cannot delete a property of a match. */
function changeObjects(current: Json | undefined, { add, remove, update, merge }: Objects): Json | undefined {
  if (!Array.isArray(current) && !add?.length) return current;
  let objects = Array.isArray(current) ? current : [];
  if (add) objects = objects.concat(add);
  if (remove) objects = objects.filter((object) => !remove.some((match) => matches(object, match)));
  for (const step of update ?? []) {
    objects = objects.map((object) => {
      if (!matches(object, step)) return object;
      return merge ? mergeInto(object, step.new_object, 'keep') : step.new_object;
    });
  }
  return objects;
}

function matches(object: Json, { key, value }: Match): boolean {
  return isRecord(object) && ownMember(object, key) === value;
}

/** Keys like `constructor` are found on every object's prototype. */
function ownMember(record: Record<string, Json>, key: string): Json | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}
