import { isDeepStrictEqual } from 'node:util';
import type { Json } from '../../profile/json.ts';
import type { Attribute } from './attributes.ts';
import { isMember, type Member } from './spell.ts';

/**
 * What an attribute is after `add` (RFC 7644 §3.5.2.1) or `replace` (§3.5.2.3) of a value that holds no member but
 * those that the attribute has. Changes neither.
 *
 * By the attribute alone it is told what has members: what an earlier operation of the same request has left there may
 * be of any type, until all of it is checked.
 */
export function combine(
  op: 'add' | 'replace',
  current: Json | undefined,
  value: Json,
  { multiValued, subAttributes }: Pick<Attribute, 'multiValued' | 'subAttributes'>,
): Json {
  if (multiValued) {
    if (op === 'replace' || !Array.isArray(current) || !Array.isArray(value)) return value;
    return [...current, ...value.filter((one) => !includes(current, one))];
  }
  if (!subAttributes || !isMember(current) || !isMember(value)) return value;
  const combined: Member = { ...current };
  for (const sub of subAttributes) {
    const member = value[sub.name];
    if (member !== undefined) combined[sub.name] = combine(op, current[sub.name], member, sub);
  }
  return combined;
}

/** A list without the values that `remove` names (RFC 7644 §3.5.2.2). */
export function without(current: Json[], value: Json): Json[] {
  const removed = Array.isArray(value) ? value : [value];
  return current.filter((one) => !includes(removed, one));
}

function includes(list: Json[], value: Json): boolean {
  return list.some((one) => isDeepStrictEqual(one, value));
}
