import { rulesOf } from '../schemas/vendor-rules.ts';
import type { OperationOptions, QueuedOperation } from './operation.ts';
import { tracking } from './track/track.ts';

/**
 * POST /users/track: records attributes, events and purchases.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersTrack(
  serviceIdField: string,
  { longStrings, rules = rulesOf.spec }: OperationOptions = {},
): QueuedOperation {
  const limits = rules.objectsOfRequest;
  const limitText =
    'inAll' in limits
      ? `At most ${limits.inAll} objects in the three arrays together.`
      : `At most ${limits.ofArray} objects in each array.`;
  return tracking({
    id: 'users.track',
    path: '/users/track',
    permission: 'users.track',
    bucket: 'users.track',
    summary: 'Record custom events, purchases and profile attributes',
    description: `${limitText} Objects take effect in the order attributes, events, purchases, and after all objects that were accepted earlier for the same identifier. \`errors\` lists the objects that were refused; all others are stored before the answer is sent. \`warnings\` lists values of stored objects that were shortened or omitted.`,
    limits,
    hasErrorCodes: rules.errorCodes === 'codes',
    ...{ serviceIdField, longStrings, rules },
  });
}
