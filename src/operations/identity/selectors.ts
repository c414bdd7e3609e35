import { ApiError, type ErrorName, refusalBy, rejectionOf } from '../../errors.ts';
import type { UserSelector } from '../../jobs/envelope.ts';
import {
  emailOf,
  externalIdOf,
  type Identifier,
  isGiven,
  type Prioritization,
  phoneOf,
  prioritizations,
  userAliasOf,
} from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { invalid, type Refusal, refuse, required } from '../../profile/refusal.ts';
import { findUnstorable, isRecord } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import { userAlias } from '../../schemas/track.ts';
import type { VendorRules } from '../../schemas/vendor-rules.ts';
import { BLOCKED_ID, type Caller } from '../operation.ts';
import { arrayOf, email, externalId, notAString, phone, prioritization } from './elements.ts';

/** Pairs of values that must not occur in the same `prioritization`. */
const exclusive = [
  ['identified', 'unidentified'],
  ['most_recently_updated', 'least_recently_updated'],
] as const;

const prioritizationNames: ReadonlySet<Json> = new Set(prioritizations);

/** Reads the user of an object with an email address or a phone number. Several users may share the address. */
export function readAddress(
  object: Record<string, Json>,
  kind: 'email' | 'phone',
): { user: UserSelector } | Refusal {
  const value = object[kind];
  if (!isGiven(value)) return required(kind);
  const address = kind === 'email' ? emailOf(value) : phoneOf(value);
  if ('error' in address) return address;
  const read = readPrioritization(object.prioritization, kind);
  return 'error' in read ? read : { user: { ...address, ...read } };
}

/** Reads a prioritization and keeps its order. An empty array is valid and excludes no user. */
function readPrioritization(
  value: Json | undefined,
  kind: 'email' | 'phone',
): { prioritization: Prioritization[] } | Refusal {
  if (value === undefined || value === null)
    return refuse('required', 'prioritization', `'prioritization' is required with '${kind}'`);
  if (!Array.isArray(value) || !value.every((element) => prioritizationNames.has(element))) {
    const names = prioritizations.map((name) => `'${name}'`).join(', ');
    const reason = Array.isArray(value) ? 'invalid' : 'wrong_type';
    return invalid('prioritization', `it must be an array of ${names}`, reason);
  }
  for (const [one, other] of exclusive) {
    if (value.includes(one) && value.includes(other)) {
      return refuse(
        'conflict',
        'prioritization',
        `Request can not contain both of '${one}' and '${other}' values in the 'prioritization' array`,
      );
    }
  }
  // A repeated value would select the same users again.
  return { prioritization: [...new Set(value as Prioritization[])] };
}

/** The arrays of a request to identify users: the answer's counter, the schema, and how to read the user of an element. */
export const identifyArrays = {
  aliases_to_identify: {
    counter: 'aliases_processed',
    schema: schemaOf({ user_alias: userAlias }, 'Users by alias, with the external id that each gets.'),
    read: ({ user_alias }: Record<string, Json>): { user: UserSelector } | Refusal => {
      if (!isGiven(user_alias)) return required('user_alias');
      const user = userAliasOf(user_alias);
      return 'error' in user ? user : { user };
    },
  },
  emails_to_identify: {
    counter: 'emails_processed',
    schema: schemaOf(
      { email, prioritization },
      'Users by email address, with the external id that each gets.',
    ),
    read: (element: Record<string, Json>) => readAddress(element, 'email'),
  },
  phone_numbers_to_identify: {
    counter: 'phone_numbers_processed',
    schema: schemaOf(
      { phone, prioritization },
      'Users by phone number, with the external id that each gets.',
    ),
    read: (element: Record<string, Json>) => readAddress(element, 'phone'),
  },
};

/** Schema of an array of elements. The array may be empty if another one is not. */
function schemaOf(identifier: Record<string, Schema>, description: string): Schema {
  const element = {
    type: 'object',
    required: ['external_id', ...Object.keys(identifier)],
    properties: { external_id: externalId('The id that the user gets.'), ...identifier },
  };
  return { ...arrayOf(element, description), minItems: 0 };
}

/** Reads a required external id. An integer is converted to its digits. */
export function readExternalId(value: Json | undefined, field: string): { id: string } | Refusal {
  if (!isGiven(value)) return required(field);
  const read = externalIdOf(value, field);
  return 'error' in read ? read : { id: read.identifier.external_id };
}

/** Reads an external id that a user gets. A blocked id is refused. */
export function readNewExternalId(
  value: Json | undefined,
  field: string,
  { isBlocked }: Caller,
): { id: string } | Refusal {
  const read = readExternalId(value, field);
  return 'id' in read && isBlocked(read.id) ? BLOCKED_ID : read;
}

/** Reads an element of an array of external ids. */
export function readExternalIdElement(value: Json, field: string): { id: string } | Refusal {
  if (!isGiven(value) || (typeof value !== 'string' && !Number.isSafeInteger(value))) {
    return notAString(field);
  }
  return readExternalId(value, 'external_id');
}

/** The two users of a merge update. */
interface MergeUpdate {
  merge: UserSelector;
  keep: UserSelector;
}

/** A placeholder without text: the answer contains the message of the whole request instead. */
const NO_TEXT = refuse('wrong_type', 'external_id', '');

/** Readers of the identifier types. As the message states, `external_id` must be a string. */
const kinds = {
  external_id: (value: Json) => (typeof value === 'string' ? externalIdOf(value) : NO_TEXT),
  user_alias: userAliasOf,
  email: emailOf,
  phone: phoneOf,
};
type Kind = keyof typeof kinds;

/**
 * Reads an element of `merge_updates`, an object.
 *
 * @throws {ApiError} with one of the specification's messages. `rejected` contains the element's position and, for a
 * prioritization, the broken rule
 */
export function readMergeUpdate(
  update: Record<string, Json>,
  index: number,
  { mergeTypes, mergeMessage }: Pick<VendorRules, 'mergeTypes' | 'mergeMessage'>,
): MergeUpdate {
  const refused = (entry: ErrorName) =>
    new ApiError(entry, {
      rejected: [rejectionOf(refusalBy(entry), { input_array: 'merge_updates', index })],
    });
  const malformed = (refusal: Refusal = { ...refusalBy('malformedMergeIdentifier'), error: mergeMessage }) =>
    new ApiError('malformedMergeIdentifier', {
      message: mergeMessage,
      rejected: [rejectionOf(refusal, { input_array: 'merge_updates', index })],
    });

  const { identifier_to_merge, identifier_to_keep, ...others } = update;
  if (Object.keys(others).length > 0) throw refused('extraMergeKeys');
  const merge = readIdentifier(identifier_to_merge);
  const keep = readIdentifier(identifier_to_keep);
  if (!merge || !keep) throw malformed();
  if (mergeTypes === 'one' && merge.kind !== keep.kind) throw refused('mixedMergeIdentifiers');
  const merged = select(merge);
  if ('error' in merged) throw malformed(merged);
  const kept = select(keep);
  if ('error' in kept) throw malformed(kept);
  return { merge: merged, keep: kept };
}

/** Reads an identifier. Returns undefined unless the value is an object with exactly one valid identifier. */
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

/**
 * Creates the selector of an identifier. An address requires a prioritization. With other types a prioritization is
 * ignored.
 */
function select({
  kind,
  identifier,
  prioritization,
}: NonNullable<ReturnType<typeof readIdentifier>>): UserSelector | Refusal {
  if (kind !== 'email' && kind !== 'phone') return { identifier };
  const read = readPrioritization(prioritization, kind);
  return 'error' in read ? read : { identifier, ...read };
}
