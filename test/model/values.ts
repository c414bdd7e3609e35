import type { Json } from '../../src/profile/json.ts';

type JsonObject = Record<string, Json>;

/**
 * Returns the value of a custom attribute after a value was sent for it, by the words of the documentation
 * alone. Undefined:
 * the attribute is absent. `sent` is a JSON value; the current one is not modified.
 */
export function valueAfter(current: Json | undefined, sent: Json, merge: boolean): Json | undefined {
  if (sent === null) return undefined;
  if (Array.isArray(sent)) return isListOfObjects(sent) ? sent : latestOnce(sent);
  if (!isObject(sent)) return sent;
  const keys = Object.keys(sent);
  if (keys.length > 0 && keys.every((key) => key === 'inc')) {
    return (typeof current === 'number' ? current : 0) + (sent.inc as number);
  }
  if (keys.length > 0 && keys.every((key) => key === 'add' || key === 'remove'))
    return changeList(current, sent);
  if (keys.length > 0 && keys.every((key) => key.startsWith('$') && key !== '$time')) {
    if (!Array.isArray(current) && toList(sent.$add).length === 0) return current;
    return changeObjects(Array.isArray(current) ? current : [], sent, merge);
  }
  // A name with a space is not allowed inside an object: the whole update is dropped.
  if (hasBadName(sent)) return current;
  return merge ? mergeDeep(current, sent, true) : sent;
}

/** Elements are unique; a repeated element moves to the end. `remove` is applied after `add`. */
function changeList(current: Json | undefined, { add, remove }: JsonObject): Json | undefined {
  if (!Array.isArray(current) && toList(add).length === 0) return current;
  const added = latestOnce([...(Array.isArray(current) ? current : []), ...toList(add)]);
  return added.filter((element) => !toList(remove).includes(element));
}

function latestOnce(list: Json[]): Json[] {
  return list.filter((element, index) => list.lastIndexOf(element) === index);
}

/** Applies additions, then removals, then updates. */
function changeObjects(current: Json[], operations: JsonObject, merge: boolean): Json[] {
  let objects = [...current, ...toList(operations.$add)];
  for (const step of toList(operations.$remove) as JsonObject[]) {
    objects = objects.filter((object) => !isMatch(object, step));
  }
  for (const step of toList(operations.$update) as JsonObject[]) {
    objects = objects.map((object) => {
      if (!isMatch(object, step)) return object;
      return merge ? mergeDeep(object, step.$new_object as JsonObject, false) : step.$new_object!;
    });
  }
  return objects;
}

function isMatch(object: Json, { $identifier_key, $identifier_value }: JsonObject): boolean {
  return isObject(object) && object[$identifier_key as string] === $identifier_value;
}

/** Null inside an object removes the name, if names can be deleted. */
function mergeDeep(current: Json | undefined, patch: JsonObject, deletes: boolean): JsonObject {
  const merged = new Map(Object.entries(isObject(current) ? current : {}));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null && deletes) merged.delete(key);
    if (value !== null) merged.set(key, isObject(value) ? mergeDeep(merged.get(key), value, deletes) : value);
  }
  return Object.fromEntries(merged);
}

function hasBadName(object: JsonObject): boolean {
  return Object.entries(object).some(
    ([name, value]) => name.includes(' ') || (isObject(value) && hasBadName(value)),
  );
}

function isListOfObjects(list: Json[]): boolean {
  return list.length > 0 && list.every(isObject);
}

function toList(value: Json | undefined): Json[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
