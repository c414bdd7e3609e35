import type { Schema } from '../schemas/compile.ts';
import {
  arrayOf,
  externalId,
  outcomePlan,
  outcomeReplies,
  refusal,
  requiredElements,
  requireValid,
  validateElements,
} from './identity/elements.ts';
import { readExternalIdElement } from './identity/selectors.ts';
import type { QueuedOperation } from './operation.ts';

const removed: Schema = { type: 'string' };
const lists = { done: 'removed_ids', errors: 'removal_errors', input_array: 'external_ids' };

/** POST /users/external_ids/remove: removes deprecated external ids, which a rename has replaced. */
export function usersExternalIdsRemove(): QueuedOperation {
  return {
    kind: 'queued',
    id: 'users.external_ids.remove',
    method: 'POST',
    path: '/users/external_ids/remove',
    permission: 'users.external_ids.remove',
    bucket: 'users.external_ids',
    summary: 'Remove deprecated external ids',
    description:
      'At most 50 deprecated ids. A removed id no longer identifies the user, and another user can get it. The answer is sent after the removals have taken effect. `removal_errors` lists the removals that failed.',
    body: {
      type: 'object',
      required: ['external_ids'],
      properties: {
        external_ids: arrayOf(externalId('A deprecated id.'), 'The deprecated ids to remove.'),
      },
    },
    replies: outcomeReplies(lists, removed),
    refusals: ['nothingValid', 'tooManyIds'],
    ...refusal(['external_ids']),
    example: {
      body: { external_ids: ['ada'] },
      reply: { removed_ids: ['ada'], removal_errors: [], message: 'success' },
    },

    plan(_caller, body) {
      const elements = requiredElements(body, 'external_ids', { of: 'strings', tooMany: 'tooManyIds' });
      const validated = validateElements('external_ids', elements, (element) => {
        const read = readExternalIdElement(element, 'external_ids');
        return 'error' in read ? read : { kind: 'external_id_remove', external_id: read.id };
      });
      requireValid(validated, ['external_ids']);
      return outcomePlan(validated, lists, ({ external_id }) => external_id);
    },
  };
}
