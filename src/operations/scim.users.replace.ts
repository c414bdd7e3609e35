import type { DirectOperation } from './operation.ts';
import {
  EXAMPLE_ID,
  exampleGiven,
  exampleResource,
  replaceSchema,
  resourceSchema,
} from './scim/account-schema.ts';
import { changeAccount } from './scim/change-account.ts';
import { scim } from './scim/messages.ts';
import { projectionQuery } from './scim/query.ts';
import { spellResource } from './scim/spell.ts';

/** PUT /scim/v2/Users/{id}: replaces what a dashboard account is and may do (RFC 7644 §3.5.1). */
export function scimUsersReplace(): DirectOperation {
  const { userName: _, ...given } = exampleGiven;
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.replace',
    method: 'PUT',
    path: '/scim/v2/Users/:id',
    summary: 'Replace a dashboard account',
    description:
      '`userName` cannot be changed; the one that there is may be sent. An account stays active or not, as it is, when `active` is absent. With `If-Match`, only an account of that version is replaced.',
    body: replaceSchema,
    spell: spellResource,
    query: projectionQuery,
    replies: { 200: { description: 'The account as it is now.', schema: resourceSchema } },
    refusals: ['scimUserNotFound', 'scimVersionChanged'],
    example: { params: { id: EXAMPLE_ID }, body: given, query: {}, reply: exampleResource },

    handle: (caller, input, resources) => changeAccount({ caller, input, resources }, async () => input.body),
  };
}
