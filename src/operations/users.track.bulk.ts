import type { LongStrings } from '../profile/attribute-rule.ts';
import type { QueuedOperation } from './operation.ts';
import { tracking } from './track/track.ts';

/** Objects of all three arrays together, and of them about one user. */
const MAX_OBJECTS = 1000;
const MAX_OF_USER = 100;

/** Bytes of a body. */
const MAX_BYTES = 2 * 1024 * 1024;

/**
 * POST /users/track/bulk: what /users/track does, with more in a request. It gives way to it.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersTrackBulk(serviceIdField: string, longStrings?: LongStrings): QueuedOperation {
  return tracking({
    id: 'users.track.bulk',
    path: '/users/track/bulk',
    permission: 'users.track.bulk',
    bucket: 'users.track.bulk',
    summary: 'Record custom events, purchases and profile attributes in bulk',
    description: `At most 1,000 objects in all three arrays together, ${MAX_OF_USER} of them about one user, and 2 MB. For backfills: while much waits, these requests are refused with 503 before those of \`/users/track\` are. Everything else is as there.`,
    limits: { inAll: MAX_OBJECTS, ofUser: MAX_OF_USER },
    maxBytes: MAX_BYTES,
    givesWay: true,
    ...{ serviceIdField, longStrings },
  });
}
