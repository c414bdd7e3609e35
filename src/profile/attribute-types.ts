import type { AttributeChange } from './attribute-rule.ts';
import type { Json } from './json.ts';
import { isDatetime } from './time.ts';
import { isRecord } from './values.ts';

/** The types of custom attributes by their names in the API. Each type is a bit in a set of types. */
const bits = {
  String: 1,
  Number: 2,
  Boolean: 4,
  Date: 8,
  Array: 16,
  Object: 32,
  'Object Array': 64,
} as const;

/** Returns the type of a value as a set. The set is empty for null, which removes the attribute. */
export function typeOfValue(value: Json): number {
  switch (typeof value) {
    case 'string':
      return isDatetime(value) ? bits.Date : bits.String;
    case 'number':
      return bits.Number;
    case 'boolean':
      return bits.Boolean;
    default:
      if (value === null) return 0;
      if (!Array.isArray(value)) return bits.Object;
      return isRecord(value[0]) ? bits['Object Array'] : bits.Array;
  }
}

/** Returns the type of an attribute after the change, as a set. */
export function typeOfChange(change: AttributeChange): number {
  if ('inc' in change) return bits.Number;
  if ('array' in change) return bits.Array;
  return 'merge' in change ? bits.Object : bits['Object Array'];
}

/** Returns the names of the types in a set, for example `String` or `String, Number`. */
export function namesOfTypes(types: number): string {
  return Object.entries(bits)
    .flatMap(([name, bit]) => (types & bit ? [name] : []))
    .join(', ');
}
