import type { UserSelector } from '../../jobs/identity.ts';
import { emailOf, isGiven, phoneOf } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { type Prioritization, prioritizations } from '../../profile/prioritization.ts';
import type { Refusal } from './elements.ts';

/** Names of values that contradict each other in one `prioritization`. */
const exclusive = [
  ['identified', 'unidentified'],
  ['most_recently_updated', 'least_recently_updated'],
] as const;

const known: ReadonlySet<Json> = new Set(prioritizations);

/** The user whom an object names by an email address or a phone number, which several may have. */
export function readAddress(
  object: Record<string, Json>,
  kind: 'email' | 'phone',
): { user: UserSelector } | Refusal {
  const value = object[kind];
  if (!isGiven(value)) return { error: `'${kind}' is required` };
  const address = kind === 'email' ? emailOf(value) : phoneOf(value);
  if ('error' in address) return address;
  const read = readPrioritization(object.prioritization, kind);
  return 'error' in read ? read : { user: { ...address, ...read } };
}

/** In its order; it may be empty, which narrows nothing. */
export function readPrioritization(
  value: Json | undefined,
  kind: 'email' | 'phone',
): { prioritization: Prioritization[] } | Refusal {
  if (value === undefined || value === null) return { error: `'prioritization' is required with '${kind}'` };
  if (!Array.isArray(value) || !value.every((element) => known.has(element))) {
    const names = prioritizations.map((name) => `'${name}'`).join(', ');
    return { error: `'prioritization' is not valid: it must be an array of ${names}` };
  }
  for (const [one, other] of exclusive) {
    if (value.includes(one) && value.includes(other)) {
      return {
        error: `Request can not contain both of '${one}' and '${other}' values in the 'prioritization' array`,
      };
    }
  }
  if (new Set(value).size < value.length) {
    return { error: "'prioritization' is not valid: it must not name a value twice" };
  }
  return { prioritization: value as Prioritization[] };
}
