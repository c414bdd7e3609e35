import type { AttributeChange } from './attributes-delta.ts';
import { isLongerThan, MAX_CHARACTERS } from './characters.ts';
import type { Json } from './json.ts';
import { normalizeNested } from './nested.ts';
import { areRecords } from './record.ts';
import { isScalar } from './scalars.ts';

type ObjectsChange = Extract<AttributeChange, { objects: unknown }>;

/** Objects to look for in one operation: each is compared with every stored object. */
const MAX_MATCHES = 100;

/** What an array of objects understands. */
export const OBJECT_OPERATIONS: ReadonlySet<string> = new Set(['$add', '$remove', '$update']);

/**
 * Reads `$add`, `$remove` and `$update`; a single element may stand without its array.
 *
 * @param operations has no other keys
 * @param merge whether an update merges into the objects it matches
 * @returns the change; the rule that an operation breaks; or undefined when an object in it holds a value
 * that cannot be taken, upon which the update is dropped
 */
export function readObjectOperations(
  operations: Record<string, Json>,
  merge: boolean,
): { change: ObjectsChange } | { broken: string } | undefined {
  const objects: ObjectsChange['objects'] = { merge };
  for (const operation in operations) {
    const value = operations[operation]!;
    const list = Array.isArray(value) ? value : [value];
    if (!areRecords(list)) return { broken: `'${operation}' must be an array of objects` };
    if (operation === '$add') {
      const added = readObjects(list);
      if (!added) return undefined;
      objects.add = added;
      continue;
    }
    if (list.length > MAX_MATCHES)
      return { broken: `'${operation}' must have at most ${MAX_MATCHES} elements` };
    const matches = readMatches(list);
    if (!matches) return { broken: `'${operation}' needs an '$identifier_key' and an '$identifier_value'` };
    if (operation === '$remove') {
      objects.remove = matches;
      continue;
    }
    const replacements = list.map((element) => element.$new_object ?? null);
    if (!areRecords(replacements)) return { broken: `'${operation}' needs an object as '$new_object'` };
    const replaced = readObjects(replacements);
    if (!replaced) return undefined;
    objects.update = matches.map((match, i) => ({ ...match, new_object: replaced[i]! }));
  }
  return { change: { objects } };
}

/** Undefined when one of them cannot be taken, or is only a date. */
function readObjects(list: Json[]): Record<string, Json>[] | undefined {
  const objects = normalizeNested(list);
  return Array.isArray(objects) && areRecords(objects) ? objects : undefined;
}

function readMatches(list: Record<string, Json>[]): { key: string; value: Json }[] | undefined {
  const matches: { key: string; value: Json }[] = [];
  for (const { $identifier_key: key, $identifier_value: value } of list) {
    if (typeof key !== 'string' || isLongerThan(key, MAX_CHARACTERS) || !isScalar(value)) return undefined;
    matches.push({ key, value });
  }
  return matches;
}
