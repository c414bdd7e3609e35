import { type ApiError, entriesOf } from '../../src/errors.ts';
import type { RefusedRequest } from '../../src/operations/operation.ts';

/** Returns the argument that web passes to `errorBody` of an operation. */
export function refusedRequest(
  { status, message, rejected }: ApiError,
  body?: RefusedRequest['body'],
): RefusedRequest {
  return { status, message, body, ...(rejected.length > 0 && { errors: entriesOf(rejected) }) };
}
