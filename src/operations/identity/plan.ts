import { BadRequest, type ErrorName, errors, type Rejection } from '../../errors.ts';
import type { IdentityObject, UserSelector } from '../../jobs/payloads.ts';
import {
  emailOf,
  externalIdOf,
  type Identifier,
  isGiven,
  phoneOf,
  userAliasOf,
} from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { findUnstorable, isRecord } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { Plan, QueuedOperation, Reply } from '../operation.ts';
import { type Judged, type Refusal, rejections, replySchema } from './elements.ts';
import { readPrioritization } from './identify-arrays.ts';

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
 * @returns its users, or what is wrong with a prioritization, which refuses the element alone
 * @throws {BadRequest} with one of the specification's messages; its `errors` name the element
 */
export function readMergeUpdate(update: Record<string, Json>, index: number): MergeUpdate | Refusal {
  const refuse = (entry: ErrorName) => {
    const { message } = errors[entry];
    return new BadRequest(message, [{ type: message, input_array: 'merge_updates', index }]);
  };

  const { identifier_to_merge, identifier_to_keep, ...others } = update;
  if (Object.keys(others).length > 0) throw refuse('extraMergeKeys');
  const merge = readIdentifier(identifier_to_merge);
  const keep = readIdentifier(identifier_to_keep);
  if (!merge || !keep) throw refuse('malformedMergeIdentifier');
  if (merge.kind !== keep.kind) throw refuse('mixedMergeIdentifiers');
  const merged = select(merge);
  if ('error' in merged) return merged;
  const kept = select(keep);
  return 'error' in kept ? kept : { merge: merged, keep: kept };
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
function select({
  kind,
  identifier,
  prioritization,
}: NonNullable<ReturnType<typeof readIdentifier>>): UserSelector | Refusal {
  if (kind !== 'email' && kind !== 'phone') return { identifier };
  const read = readPrioritization(prioritization, kind);
  return 'error' in read ? read : { identifier, ...read };
}

/** Names of the answer's two lists, and of the request's array. */
export interface Lists {
  /** What took effect. */
  done: string;
  /** What did not, here or in the store. */
  errors: string;
  input_array: string;
}

/**
 * The plan of a request whose answer says which of its objects took effect. A caller who waits for that in
 * vain is told that all of them are accepted, with 202.
 *
 * @param show an object as the list of those that took effect has it
 */
export function settledPlan<T extends IdentityObject>(
  { objects, rejected }: Judged<T>,
  { done, errors, input_array }: Lists,
  show: (object: T) => Json,
): Plan {
  const bodyOf = (failures: ReadonlyMap<string, string>) => {
    const late: Rejection[] = objects.flatMap(({ id, index }) => {
      const type = failures.get(id);
      return type === undefined ? [] : [{ type, input_array, index }];
    });
    return {
      [done]: objects.filter(({ id }) => !failures.has(id)).map(show),
      [errors]: [...rejected, ...late].sort((one, other) => one.index - other.index),
      message: 'success',
    };
  };
  return {
    objects,
    rejected: rejected.length,
    reply: { status: 202, body: { ...bodyOf(new Map()), pending: true } },
    replyOf: (failures): Reply => ({ status: 201, body: bodyOf(failures) }),
  };
}

/**
 * The answers that such a plan has.
 *
 * @param shown schema of what `show` makes
 */
export function settledReplies(
  { done, errors, input_array }: Lists,
  shown: Schema,
): QueuedOperation['replies'] {
  const lists = (took: string, refused: string) => ({
    [done]: { type: 'array', description: took, items: shown },
    [errors]: rejections([input_array], refused),
  });
  return {
    201: {
      description: 'What is listed has taken effect.',
      schema: replySchema(lists('What took effect.', 'The elements that did not, and why.')),
    },
    202: {
      description:
        'It takes longer than a caller should wait: what is listed is on disk, and takes effect if nothing in the store speaks against it.',
      schema: replySchema({
        ...lists('What was accepted.', 'The elements that cannot be read.'),
        pending: { const: true },
      }),
    },
  };
}
