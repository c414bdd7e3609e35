import type { Rejection } from '../../errors.ts';
import type { IdentityObject } from '../../jobs/identity.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/schema.ts';
import type { Plan, QueuedOperation, Reply } from '../operation.ts';
import type { Judged } from './elements.ts';
import { rejections, replySchema } from './schemas.ts';

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
    settle: (failures): Reply => ({ status: 201, body: bodyOf(failures) }),
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
