import { aliasPartError } from '../profile/identifier.ts';
import {
  aliasPart,
  arrayOf,
  countedReply,
  counter,
  planOf,
  refusal,
  requiredElements,
  validateObjects,
} from './identity/elements.ts';
import type { QueuedOperation } from './operation.ts';

const parts = ['alias_label', 'old_alias_name', 'new_alias_name'] as const;

/** POST /users/alias/update: renames aliases. */
export function usersAliasUpdate(): QueuedOperation {
  return {
    kind: 'queued',
    id: 'users.alias.update',
    method: 'POST',
    path: '/users/alias/update',
    permission: 'users.alias.update',
    bucket: 'users.identity',
    summary: 'Rename aliases',
    description:
      'At most 50 alias updates. The alias with the label and the old name gets the new name. An element has no effect if no user has the old alias, or if a user has the new one already. `errors` lists the elements that are not valid.',
    body: {
      type: 'object',
      required: ['alias_updates'],
      properties: {
        alias_updates: arrayOf(
          {
            title: 'AliasUpdate',
            type: 'object',
            required: parts,
            properties: {
              alias_label: aliasPart('Kind of the alias. It does not change.'),
              old_alias_name: aliasPart('Current name of the alias, in upper and lower case as stored.'),
              new_alias_name: aliasPart('New name of the alias.'),
            },
          },
          'The aliases to rename.',
        ),
      },
    },
    replies: {
      201: {
        description: 'The counted updates are stored on disk and will take effect.',
        schema: countedReply(['alias_updates'], {
          aliases_processed: counter('Number of updates accepted.'),
        }),
      },
    },
    refusals: ['nothingValid', 'tooManyIdsAndAliases'],
    ...refusal(['alias_updates']),
    example: {
      body: { alias_updates: [{ alias_label: 'forum', old_alias_name: 'ada', new_alias_name: 'lovelace' }] },
      reply: { aliases_processed: 1, message: 'success' },
    },

    plan(_caller, body) {
      const elements = requiredElements(body, 'alias_updates', {
        of: 'objects',
        tooMany: 'tooManyIdsAndAliases',
      });
      const validated = validateObjects('alias_updates', elements, (update) => {
        for (const part of parts) {
          const refused = aliasPartError(update[part], part);
          if (refused !== undefined) return refused;
        }
        const { alias_label, old_alias_name, new_alias_name } = update as Record<
          (typeof parts)[number],
          string
        >;
        return { kind: 'alias_update', alias_label, old_alias_name, new_alias_name };
      });
      return planOf(validated, ['alias_updates'], { aliases_processed: validated.objects.length });
    },
  };
}
