import type { Json } from '../profile/json.ts';
import { findAccounts, SearchTooLong } from '../store/accounts.ts';
import type { DirectOperation } from './operation.ts';
import { exampleResource, resourceSchema } from './scim/account-schema.ts';
import { companyOf, requestOf } from './scim/change-account.ts';
import { readFilter } from './scim/filter.ts';
import { LIST_RESPONSE, ScimError, scim } from './scim/messages.ts';
import { listQuery, MAX_COUNT, nextCursor, readPage, readProjection } from './scim/query.ts';
import { readNames, toResource } from './scim/resource.ts';

/** GET /scim/v2/Users: returns the accounts of the company, optionally filtered (RFC 7644 §3.4.2). */
export function scimUsersList(): DirectOperation {
  const { schemas: _, ...listed } = exampleResource;
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.list',
    method: 'GET',
    path: '/scim/v2/Users',
    summary: 'Find console accounts',
    description: `A filter compares \`userName\`, \`name\`, \`name.givenName\`, \`name.familyName\`, \`department\`, \`id\`, \`externalId\`, \`emails\` by \`eq\`, \`co\` and \`sw\`, and \`active\` by \`eq\`, with \`and\`, \`or\` and parentheses. Only ids are case-sensitive. Accounts are listed in the order of creation, at most ${MAX_COUNT} per page. With \`cursor\`, deleted accounts do not shift the pages.`,
    query: listQuery,
    replies: {
      200: {
        description: 'One page of the accounts found.',
        schema: {
          type: 'object',
          required: ['schemas', 'totalResults', 'Resources'],
          properties: {
            schemas: { type: 'array', items: { const: LIST_RESPONSE } },
            totalResults: { type: 'integer', description: 'Number of accounts on all pages.' },
            startIndex: {
              type: 'integer',
              description: 'Position of the first account on this page, from 1.',
            },
            itemsPerPage: { type: 'integer', description: 'Number of accounts on this page.' },
            nextCursor: {
              type: 'string',
              description: 'Cursor of the next page, if the request has `cursor`.',
            },
            Resources: { type: 'array', items: resourceSchema },
          },
        },
      },
    },
    refusals: ['scimUnparsable', 'scimTooMany'],
    example: {
      query: { filter: 'userName eq "ada@example.com"' },
      reply: {
        schemas: [LIST_RESPONSE],
        totalResults: 1,
        startIndex: 1,
        itemsPerPage: 1,
        Resources: [listed],
      },
    },

    async handle(caller, input, { database: { pool, prisma } }) {
      const { filter } = input.query;
      const project = readProjection(input.query);
      const page = readPage(input.query);
      const condition = filter === undefined ? undefined : readFilter(filter as string);
      const matches = await findAccounts(pool, companyOf(caller), { condition, ...page }).catch((error) => {
        throw error instanceof SearchTooLong ? new ScimError('scimTooMany', 'tooMany') : error;
      });
      const accounts = await prisma.account.findMany({
        where: { id: { in: matches.page.map(({ id }) => id) } },
        orderBy: { position: 'asc' },
      });
      const names = await readNames(prisma, accounts);
      const { baseUrl } = requestOf(input);
      const Resources = accounts.map((account): Json => {
        // The specification omits `schemas` in lists.
        const { schemas: _schemas, ...resource } = project(toResource(account, names, baseUrl));
        return resource;
      });
      return {
        status: 200,
        body: {
          schemas: [LIST_RESPONSE],
          totalResults: matches.total,
          ...(page.after === undefined && { startIndex: page.skip + 1 }),
          itemsPerPage: Resources.length,
          ...nextCursor(page, matches),
          Resources,
        },
      };
    },
  };
}
