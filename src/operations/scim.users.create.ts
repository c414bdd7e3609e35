import { inTime } from '../store/accounts/in-time.ts';
import type { DirectOperation } from './operation.ts';
import { createSchema, resourceSchema } from './scim/account-schema.ts';
import { replyWith } from './scim/change-account.ts';
import { exampleGiven, exampleResource } from './scim/example.ts';
import { companyOf, requestOf } from './scim/find-account.ts';
import { scim } from './scim/messages.ts';
import { readProjection } from './scim/projection.ts';
import { projectionQuery } from './scim/query.ts';
import { readAccount, readEmail } from './scim/read-account.ts';
import { ScimError } from './scim/scim-error.ts';
import { spellResource } from './scim/spell.ts';

/** POST /scim/v2/Users: makes a dashboard account (RFC 7644 §3.3). */
export function scimUsersCreate(): DirectOperation {
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.create',
    method: 'POST',
    path: '/scim/v2/Users',
    summary: 'Create a dashboard account',
    description:
      'Workspaces, teams and permission sets are named by name or by id, and answered with both. `active` is true unless given. Members that we do not know are passed over.',
    body: createSchema,
    spell: spellResource,
    query: projectionQuery,
    replies: { 201: { description: 'The account that was made.', schema: resourceSchema } },
    refusals: ['scimUserExists'],
    example: { body: exampleGiven, query: {}, reply: exampleResource },

    async handle(caller, input, { database: { prisma } }) {
      const { body } = input;
      const companyId = companyOf(caller);
      const project = readProjection(input.query);
      const email = readEmail(body.userName as string);
      const values = await readAccount(prisma, companyId, body, true);
      const now = new Date(caller.now);
      const id = caller.requestId;
      const userName = body.userName as string;
      const dates = { createdAt: now, modifiedAt: now };
      const create = prisma.account.create({ data: { id, companyId, userName, email, ...values, ...dates } });
      const account = await inTime(prisma, create).catch(async (error: { code?: string }) => {
        if (error.code !== 'P2002') throw error;
        const made = await prisma.account.findFirst({ where: { id, companyId } });
        if (made) return made;
        // The one unique thing that a client chooses is the email address.
        throw new ScimError('scimUserExists', 'uniqueness');
      });
      return replyWith(201, account, prisma, requestOf(input).baseUrl, project);
    },
  };
}
