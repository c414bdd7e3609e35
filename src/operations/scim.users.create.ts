import { auditIn, inTime } from '../store/audit.ts';
import type { DirectOperation } from './operation.ts';
import { createSchema, exampleGiven, exampleResource, resourceSchema } from './scim/account-schema.ts';
import { actorOf, companyOf, replyWith, requestOf } from './scim/change-account.ts';
import { ScimError, scim } from './scim/messages.ts';
import { projectionQuery, readProjection } from './scim/query.ts';
import { readAccount, readEmail, toColumns } from './scim/read-account.ts';
import { spellResource } from './scim/spell.ts';

/** POST /scim/v2/Users: creates a console account (RFC 7644 §3.3). */
export function scimUsersCreate(): DirectOperation {
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.create',
    method: 'POST',
    path: '/scim/v2/Users',
    summary: 'Create a console account',
    description:
      'Identify workspaces, teams and permission sets by name or by id. The answer has both. `active` is true by default. Unknown members are ignored.',
    body: createSchema,
    spell: spellResource,
    query: projectionQuery,
    replies: { 201: { description: 'The created account.', schema: resourceSchema } },
    refusals: ['scimUserExists'],
    example: { body: exampleGiven, query: {}, reply: exampleResource },

    async handle(caller, input, { database: { prisma } }) {
      const { body } = input;
      const companyId = companyOf(caller);
      const project = readProjection(input.query);
      const email = readEmail(body.userName as string);
      const values = await readAccount(prisma, { companyId, body, active: true });
      const now = new Date(caller.now);
      const id = caller.requestId;
      const userName = body.userName as string;
      const dates = { createdAt: now, modifiedAt: now };
      const create = prisma.account.create({
        data: { id, companyId, userName, email, ...toColumns(values), ...dates },
      });
      const subject = { kind: 'account', id };
      const detail = { active: values.active };
      const audit = auditIn(prisma, actorOf(caller), [
        { action: 'accounts.create', subject, companyId, detail },
      ]);
      const account = await inTime(prisma, audit, create).catch(async (error: { code?: string }) => {
        if (error.code !== 'P2002') throw error;
        const made = await prisma.account.findFirst({ where: { id, companyId } });
        if (made) return made;
        // The email address is the only unique column that a client sets, so it must be the one that exists.
        throw new ScimError('scimUserExists', 'uniqueness');
      });
      const { baseUrl } = requestOf(input);
      return replyWith({ status: 201, account, baseUrl, project }, prisma);
    },
  };
}
