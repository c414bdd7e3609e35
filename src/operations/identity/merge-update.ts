import { BadRequest, type ErrorName, errors } from '../../errors.ts';
import type { UserSelector } from '../../jobs/identity.ts';
import {
  emailOf,
  externalIdOf,
  type Identifier,
  isGiven,
  phoneOf,
  userAliasOf,
} from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { isRecord } from '../../profile/record.ts';
import { findUnstorable } from '../../profile/values.ts';
import { readPrioritization } from './address.ts';

/** The two users of a merge update. */
export interface MergeUpdate {
  merge: UserSelector;
  keep: UserSelector;
}

/** What the identifier object of each type may carry. `external_id` is a string only, as the message says. */
const kinds = {
  external_id: (value: Json) => (typeof value === 'string' ? externalIdOf(value) : { error: '' }),
  user_alias: userAliasOf,
  email: emailOf,
  phone: phoneOf,
};
type Kind = keyof typeof kinds;

/**
 * Reads an element of `merge_updates`, an object.
 *
 * @throws {BadRequest} with one of the specification's messages, or the text of what is wrong with a
 * prioritization; its `errors` name the element
 */
export function readMergeUpdate(update: Record<string, Json>, index: number): MergeUpdate {
  const refuse = (text: string) =>
    new BadRequest(text, [{ type: text, input_array: 'merge_updates', index }]);
  const refuseAs = (entry: ErrorName) => refuse(errors[entry].message);

  const { identifier_to_merge, identifier_to_keep, ...others } = update;
  if (Object.keys(others).length > 0) throw refuseAs('extraMergeKeys');
  const merge = readIdentifier(identifier_to_merge);
  const keep = readIdentifier(identifier_to_keep);
  if (!merge || !keep) throw refuseAs('malformedMergeIdentifier');
  if (merge.kind !== keep.kind) throw refuseAs('mixedMergeIdentifiers');
  return { merge: select(merge, refuse), keep: select(keep, refuse) };
}

/** Undefined when it is not an object that holds exactly one identifier. */
function readIdentifier(value: Json | undefined) {
  if (!isRecord(value) || findUnstorable(value) !== undefined) return undefined;
  const { prioritization, ...named } = value;
  const given = Object.keys(named).filter((key) => isGiven(named[key]));
  const [kind] = given;
  if (given.length !== 1 || !Object.hasOwn(kinds, kind!)) return undefined;
  const read = kinds[kind as Kind](named[kind!]!);
  return 'error' in read
    ? undefined
    : { kind: kind as Kind, identifier: read.identifier as Identifier, prioritization };
}

/** An address needs to be narrowed; what names one user alone is taken as it is. */
function select(
  { kind, identifier, prioritization }: NonNullable<ReturnType<typeof readIdentifier>>,
  refuse: (text: string) => BadRequest,
): UserSelector {
  if (kind !== 'email' && kind !== 'phone') return { identifier };
  const read = readPrioritization(prioritization, kind);
  if ('error' in read) throw refuse(read.error);
  return { identifier, ...read };
}
