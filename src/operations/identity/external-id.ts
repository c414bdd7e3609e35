import { externalIdOf, isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { BLOCKED } from '../blocked.ts';
import type { Caller } from '../operation.ts';
import type { Refusal } from './elements.ts';

/** An external id in a field that must have one; an integer is its digits. */
export function readExternalId(value: Json | undefined, field: string): { id: string } | Refusal {
  if (!isGiven(value)) return { error: `'${field}' is required` };
  const read = externalIdOf(value, field);
  return 'error' in read ? read : { id: read.identifier.external_id };
}

/** As `readExternalId`, for an id that a user is given: one that is blocked is refused. */
export function readNewExternalId(
  value: Json | undefined,
  field: string,
  { isBlocked }: Caller,
): { id: string } | Refusal {
  const read = readExternalId(value, field);
  return 'id' in read && isBlocked(read.id) ? { error: BLOCKED } : read;
}

/** An external id that is itself an element of an array. */
export function readExternalIdElement(value: Json, field: string): { id: string } | Refusal {
  if (!isGiven(value) || (typeof value !== 'string' && !Number.isSafeInteger(value))) {
    return { error: `each element of '${field}' must be a non-empty string` };
  }
  return readExternalId(value, 'external_id');
}
