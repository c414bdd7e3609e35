import { rulesOf } from '../schemas/vendor-rules.ts';
import type { OperationOptions, QueuedOperation } from './operation.ts';
import { tracking } from './track/track.ts';

/** Maximum number of objects in the three arrays together, and with the same identifier. */
const MAX_OBJECTS = 1000;
const MAX_OF_USER = 100;

/** Maximum size of the body in bytes. */
const MAX_BYTES = 2 * 1024 * 1024;

/**
 * POST /users/track/bulk: /users/track with more objects per request. It is refused before /users/track when the queue
 * fills up.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersTrackBulk(
  serviceIdField: string,
  { longStrings, rules = rulesOf.spec }: OperationOptions = {},
): QueuedOperation {
  return tracking({
    id: 'users.track.bulk',
    path: '/users/track/bulk',
    permission: 'users.track.bulk',
    bucket: 'users.track.bulk',
    summary: 'Record custom events, purchases and profile attributes in bulk',
    description: `At most 1,000 objects in the three arrays together, at most ${MAX_OF_USER} of them for one user, and at most 2 MB. Use it for backfills: under load, these requests are refused with 503 earlier than requests to \`/users/track\`. Otherwise both operations work in the same way.`,
    limits: { inAll: MAX_OBJECTS, ofUser: MAX_OF_USER },
    maxBytes: MAX_BYTES,
    ...(rules.largeBulkBody === 400 && { tooLarge: 'bulkBodyTooLarge' as const }),
    isBulk: true,
    ...{ serviceIdField, longStrings, rules },
  });
}
