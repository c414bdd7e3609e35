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

/** PUT /scim/v2/Users/{id}: replaces the attributes and permissions of a console account (RFC 7644 §3.5.1). */
export function scimUsersReplace(): DirectOperation {
  const { userName: _, ...given } = exampleGiven;
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.replace',
    method: 'PUT',
    path: '/scim/v2/Users/:id',
    summary: 'Replace a console account',
    description:
      '`userName` cannot change; you can send the current value. If `active` is absent, it does not change. With `If-Match`, the account is replaced only if it has the given version.',
    body: replaceSchema,
    spell: spellResource,
    query: projectionQuery,
    replies: { 200: { description: 'The account as it is now.', schema: resourceSchema } },
    refusals: ['scimUserNotFound', 'scimVersionChanged'],
    example: { params: { id: EXAMPLE_ID }, body: given, query: {}, reply: exampleResource },

    handle: (caller, input, resources) => changeAccount({ caller, input, resources }, async () => input.body),
  };
}
