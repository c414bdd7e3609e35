import type { LongStrings } from '../profile/attribute-rule.ts';
import type { QueuedOperation } from './operation.ts';
import { tracking } from './track/track.ts';

/** Objects in each of the three arrays. */
const MAX_OBJECTS = 75;

/**
 * POST /users/track: records attributes, events and purchases.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersTrack(serviceIdField: string, longStrings?: LongStrings): QueuedOperation {
  return tracking({
    id: 'users.track',
    path: '/users/track',
    permission: 'users.track',
    bucket: 'users.track',
    summary: 'Record custom events, purchases and profile attributes',
    description: `At most ${MAX_OBJECTS} objects in each array. Objects take effect in the order attributes, events, purchases, and after all objects that were accepted earlier for the same identifier. \`errors\` lists the objects that were refused; all others are stored before the answer is sent. \`warnings\` lists values of stored objects that were shortened or omitted.`,
    limits: { ofArray: MAX_OBJECTS },
    ...{ serviceIdField, longStrings },
  });
}
