import { aliasPartError, isGiven } from '../profile/identifier.ts';
import { judgeObjects, planOf, requiredElements } from './identity/elements.ts';
import { readNewExternalId } from './identity/external-id.ts';
import { aliasPart, arrayOf, countedReply, counter, externalId, refusal } from './identity/schemas.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /users/alias/new: gives existing users aliases, or makes users who have only an alias. */
export function usersAliasNew(): QueuedOperation {
  return {
    kind: 'queued',
    id: 'users.alias.new',
    method: 'POST',
    path: '/users/alias/new',
    permission: 'users.alias.new',
    bucket: 'users.identity',
    summary: 'Add aliases to users, or create alias-only users',
    description:
      'At most 50 aliases. With an external id the alias goes to the user who has it, and to nobody when there is no such user; without, a user is made who has only the alias. An alias that somebody has already stays where it is, and so does the alias that a user has with the same label. An element that cannot be read is named in `errors`.',
    body: {
      type: 'object',
      required: ['user_aliases'],
      properties: {
        user_aliases: arrayOf(
          {
            title: 'NewUserAlias',
            type: 'object',
            required: ['alias_name', 'alias_label'],
            properties: {
              external_id: externalId('The id of the user who gets the alias.'),
              alias_name: aliasPart('Name of the alias.'),
              alias_label: aliasPart('Kind of the alias.'),
            },
          },
          'The new aliases.',
        ),
      },
    },
    replies: {
      201: {
        description: 'The counted aliases are on disk and will take effect.',
        schema: countedReply(['user_aliases'], { aliases_processed: counter('Number of aliases accepted.') }),
      },
    },
    refusals: ['tooManyIdsAndAliases'],
    ...refusal(['user_aliases']),
    example: {
      body: {
        user_aliases: [
          { external_id: 'ada', alias_name: 'ada', alias_label: 'forum' },
          { alias_name: 'c-1042', alias_label: 'cookie' },
        ],
      },
      reply: { aliases_processed: 2, message: 'success' },
    },

    plan(caller, body) {
      const elements = requiredElements(body, 'user_aliases', 'objects', 'tooManyIdsAndAliases');
      const judged = judgeObjects('user_aliases', elements, ({ external_id, alias_name, alias_label }) => {
        const error = aliasPartError(alias_name, 'alias_name') ?? aliasPartError(alias_label, 'alias_label');
        if (error !== undefined) return { error };
        const user_alias = { alias_name: alias_name as string, alias_label: alias_label as string };
        if (!isGiven(external_id)) return { kind: 'alias_new', user_alias };
        const owner = readNewExternalId(external_id, 'external_id', caller);
        return 'error' in owner ? owner : { kind: 'alias_new', user_alias, external_id: owner.id };
      });
      return planOf(judged, ['user_aliases'], { aliases_processed: judged.objects.length });
    },
  };
}
