import { auditAccountIn, inTime } from '../store/audit.ts';
import type { DirectOperation } from './operation.ts';
import { EXAMPLE_ID } from './scim/account-schema.ts';
import { actorOf, companyOf, findAccount, requestOf, requireMatch } from './scim/change-account.ts';
import { ScimError, scim } from './scim/messages.ts';

/** DELETE /scim/v2/Users/{id}: deletes a console account permanently (RFC 7644 §3.6). */
export function scimUsersDelete(): DirectOperation {
  return {
    ...scim,
    kind: 'direct',
    id: 'scim.users.delete',
    method: 'DELETE',
    path: '/scim/v2/Users/:id',
    summary: 'Delete a console account',
    description:
      'The account is signed out immediately, and its email address can be used again. With `If-Match`, the account is deleted only if it has the given version.',
    replies: { 204: { description: 'The account was deleted.', schema: {} } },
    refusals: ['scimUserNotFound', 'scimVersionChanged'],
    example: { params: { id: EXAMPLE_ID }, reply: null },

    async handle(caller, input, { database: { prisma } }) {
      const companyId = companyOf(caller);
      const { ifMatch } = requestOf(input);
      const account = await findAccount(prisma, { companyId, id: input.params.id! }, 'scimUserNotFound');
      requireMatch(ifMatch, account);
      const { id, version } = account;
      const where = { id, companyId, ...(ifMatch !== undefined && { version }) };
      const audit = auditAccountIn(prisma, actorOf(caller), {
        action: 'accounts.delete',
        account: { id, companyId, version: ifMatch === undefined ? undefined : version },
      });
      const deleted = await inTime(prisma, audit, prisma.account.deleteMany({ where }));
      if (deleted.count === 0)
        throw new ScimError(ifMatch === undefined ? 'scimUserNotFound' : 'scimVersionChanged');
      return { status: 204, body: undefined };
    },
  };
}
