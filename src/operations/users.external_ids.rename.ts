import { refuse } from '../profile/refusal.ts';
import type { Schema } from '../schemas/compile.ts';
import {
  arrayOf,
  externalId,
  outcomePlan,
  outcomeReplies,
  refusal,
  requiredElements,
  requireValid,
  validateObjects,
} from './identity/elements.ts';
import { readExternalId, readNewExternalId } from './identity/selectors.ts';
import type { QueuedOperation } from './operation.ts';

const FIELD = 'external_id_renames';

const rename: Schema = {
  title: 'ExternalIdRename',
  type: 'object',
  required: ['current_external_id', 'new_external_id'],
  properties: {
    current_external_id: externalId('The id that the user has.'),
    new_external_id: externalId('The new id of the user. No user may have it as current or deprecated id.'),
  },
};
const lists = { done: 'external_ids', errors: 'rename_errors', input_array: FIELD };

/** POST /users/external_ids/rename: gives users another external id. The deprecated id still finds them. */
export function usersExternalIdsRename(): QueuedOperation {
  return {
    kind: 'queued',
    id: 'users.external_ids.rename',
    method: 'POST',
    path: '/users/external_ids/rename',
    permission: 'users.external_ids.rename',
    bucket: 'users.external_ids',
    summary: 'Rename external ids',
    description:
      'At most 50 renames. The current id becomes deprecated: it still identifies the user until you remove it. The answer is sent after the renames have taken effect. `rename_errors` lists the renames that failed.',
    body: {
      type: 'object',
      required: [FIELD],
      properties: { [FIELD]: arrayOf(rename, 'The renames.') },
    },
    replies: outcomeReplies(lists, rename),
    refusals: ['nothingValid', 'tooManyIds'],
    ...refusal([FIELD]),
    example: {
      body: { [FIELD]: [{ current_external_id: 'ada', new_external_id: 'ada-lovelace' }] },
      reply: {
        external_ids: [{ current_external_id: 'ada', new_external_id: 'ada-lovelace' }],
        rename_errors: [],
        message: 'success',
      },
    },

    plan(caller, body) {
      const elements = requiredElements(body, FIELD, { of: 'objects', tooMany: 'tooManyIds' });
      const validated = validateObjects(FIELD, elements, (element) => {
        const current = readExternalId(element.current_external_id, 'current_external_id');
        if ('error' in current) return current;
        const renamed = readNewExternalId(element.new_external_id, 'new_external_id', caller);
        if ('error' in renamed) return renamed;
        if (current.id === renamed.id) {
          return refuse(
            'conflict',
            'new_external_id',
            "'new_external_id' must differ from 'current_external_id'",
          );
        }
        return {
          kind: 'external_id_rename',
          current_external_id: current.id,
          new_external_id: renamed.id,
        };
      });
      requireValid(validated, [FIELD]);
      return outcomePlan(validated, lists, ({ current_external_id, new_external_id }) => ({
        current_external_id,
        new_external_id,
      }));
    },
  };
}
