import type { Json } from '../../profile/json.ts';
import type { Attribute } from './attributes.ts';
import { isMember, type Member } from './spell.ts';

/** Counts the values that the operations of one request look at. @throws {ScimError} when they are too many */
export type Spend = (values: number) => void;

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
  spend: Spend,
): Json {
  if (multiValued) {
    if (op === 'replace' || !Array.isArray(current) || !Array.isArray(value)) return value;
    return [...current, ...without(value, current, spend)];
  }
  if (!subAttributes || !isMember(current) || !isMember(value)) return value;
  const combined: Member = { ...current };
  for (const sub of subAttributes) {
    const member = value[sub.name];
    if (member !== undefined) combined[sub.name] = combine(op, current[sub.name], member, sub, spend);
  }
  return combined;
}

/** A list without the values that are equal to one of another list. Its work grows with the sum of both. */
export function without(list: Json[], other: Json[], spend: Spend): Json[] {
  const texts = new Set(other.map((one) => textOf(one, spend)));
  return list.filter((one) => !texts.has(textOf(one, spend)));
}

/** The same for values that are equal, in whatever order their members stand. */
function textOf(value: Json, spend: Spend): string {
  spend(1);
  if (Array.isArray(value)) return `[${value.map((one) => textOf(one, spend)).join()}]`;
  if (!isMember(value)) return JSON.stringify(value);
  const members = Object.keys(value)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${textOf(value[name]!, spend)}`);
  return `{${members.join()}}`;
}
