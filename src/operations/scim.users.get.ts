import type { DirectOperation } from './operation.ts';
import { EXAMPLE_ID, exampleResource, resourceSchema } from './scim/account-schema.ts';
import { companyOf, findAccount, namesVersion, replyWith, requestOf } from './scim/change-account.ts';
import { scim } from './scim/messages.ts';
import { projectionQuery, readProjection } from './scim/query.ts';
import { versionOf } from './scim/resource.ts';

/** GET /scim/v2/Users/{id}: returns a console account (RFC 7644 §3.4.1). */
export function scimUsersGet(): DirectOperation {
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.get',
    method: 'GET',
    path: '/scim/v2/Users/:id',
    summary: 'Get a console account',
    description: 'With `If-None-Match`, the answer is 304 if the account has one of the given versions.',
    query: projectionQuery,
    replies: {
      200: { description: 'The account.', schema: resourceSchema },
    },
    refusals: ['scimResourceNotFound'],
    example: { params: { id: EXAMPLE_ID }, query: {}, reply: exampleResource },

    async handle(caller, input, { database: { prisma } }) {
      const { baseUrl, ifNoneMatch } = requestOf(input);
      const project = readProjection(input.query);
      const named = { companyId: companyOf(caller), id: input.params.id! };
      const account = await findAccount(prisma, named, 'scimResourceNotFound');
      if (ifNoneMatch !== undefined && namesVersion(ifNoneMatch, account))
        return { status: 304, body: undefined, headers: { ETag: versionOf(account) } };
      return replyWith({ status: 200, account, baseUrl, project }, prisma);
    },
  };
}
