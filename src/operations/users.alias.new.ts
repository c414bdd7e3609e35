import { ALIAS_NO_OBJECT, aliasPartError, isEmptyAlias, isGiven } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { invalid, type Refusal } from '../profile/refusal.ts';
import { isRecord } from '../profile/values.ts';
import {
  aliasPart,
  arrayOf,
  countedReply,
  counter,
  externalId,
  planOf,
  refusal,
  requiredElements,
  validateObjects,
} from './identity/elements.ts';
import { readNewExternalId } from './identity/selectors.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /users/alias/new: gives existing users aliases, or creates users who have only an alias. */
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
      'At most 50 aliases. With an external id, the user with this id gets the alias; if no user has the id, the element has no effect. Without an external id, an alias-only user is created. An element has no effect if another user has the alias already, or if the user has an alias with the same label. `errors` lists the elements that are not valid. You can also send the two parts in a `user_alias` object.',
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
        description: 'The counted aliases are stored on disk and will take effect.',
        schema: countedReply(['user_aliases'], { aliases_processed: counter('Number of aliases accepted.') }),
      },
    },
    refusals: ['nothingValid', 'tooManyIdsAndAliases'],
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
      const elements = requiredElements(body, 'user_aliases', {
        of: 'objects',
        tooMany: 'tooManyIdsAndAliases',
      });
      const validated = validateObjects('user_aliases', elements, (element) => {
        const named = partsOf(element);
        if ('error' in named) return named;
        const { alias_name, alias_label } = named.parts;
        const { external_id } = element;
        const refused =
          aliasPartError(alias_name, 'alias_name') ?? aliasPartError(alias_label, 'alias_label');
        if (refused !== undefined) return refused;
        const user_alias = { alias_name: alias_name as string, alias_label: alias_label as string };
        if (!isGiven(external_id)) return { kind: 'alias_new', user_alias };
        const owner = readNewExternalId(external_id, 'external_id', caller);
        return 'error' in owner ? owner : { kind: 'alias_new', user_alias, external_id: owner.id };
      });
      return planOf(validated, ['user_aliases'], { aliases_processed: validated.objects.length });
    },
  };
}

/** Reads the alias name and label. Clients may nest them in `user_alias`, as in other requests. */
function partsOf(element: Record<string, Json>): { parts: Record<string, Json> } | Refusal {
  const { user_alias: nested } = element;
  if (!isGiven(nested) || isEmptyAlias(nested)) return { parts: element };
  if (!isRecord(nested)) {
    return ALIAS_NO_OBJECT;
  }
  for (const part of ['alias_name', 'alias_label'] as const) {
    const sibling = element[part];
    if (isGiven(sibling) && sibling !== nested[part]) {
      return invalid(part, "it must not differ from the one in 'user_alias'", 'conflict');
    }
  }
  return { parts: nested };
}
