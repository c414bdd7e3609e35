import { type ApiError, errors } from '../../src/errors.ts';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Caller, Plan, QueuedOperation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { callerOf } from './caller.ts';
import { refusedRequest } from './refused-request.ts';

export interface IdentityAnswer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: the assertions on the body check its shape
  body: any;
  /** Objects without ids and positions. */
  objects: object[];
  plan?: Plan;
}

/** Errors for more than 50 elements, by the kind of elements. */
export const tooMany = {
  ids: errors.tooManyIds.message,
  idsAndAliases: errors.tooManyIdsAndAliases.message,
};

/** Texts that cannot be stored, each with the end of its error. */
export const unstorable: [string, string][] = [
  ['a\u0000b', 'it must not contain the character \\u0000'],
  ['a\ud800', 'it must not contain half of a surrogate pair'],
];

/** Plans an identity operation for a body. @returns status, answer, and objects for the workers */
export function identityPlanner(operation: QueuedOperation, change: Partial<Caller> = {}) {
  const caller = callerOf('018f0000-0000-7000-8000-000000000000', change);

  return function plan(body: Record<string, Json>): IdentityAnswer {
    let made: Plan;
    try {
      made = operation.plan(caller, body);
    } catch (error) {
      const refused = refusedRequest(error as ApiError, body);
      return { status: refused.status, body: operation.errorBody!(refused), objects: [] };
    }
    const { reply, objects } = made;
    return { status: reply.status, body: reply.body, objects: objects.map(contentOf), plan: made };
  };
}

function contentOf({ id: _id, index: _index, ...content }: AcceptedObject): object {
  return content;
}

/** Returns the text that rejects the only element of an array. */
export function errorOf({ status, body, objects }: IdentityAnswer): string {
  if (status !== 400 || objects.length > 0) throw new Error(`accepted: ${JSON.stringify(body)}`);
  return body.errors[0].type;
}
