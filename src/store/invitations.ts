import { type Actor, auditIn } from './audit.ts';
import { newInvitation } from './credentials.ts';
import type { Database } from './database.ts';

/** An account, in its company. */
export interface AccountKey {
  id: string;
  companyId: string;
}

/**
 * Invites an account to set a password; an earlier invitation ends.
 * @returns the secret of the link, which is stored nowhere; nothing when the account is gone or inactive
 */
export async function inviteAccount(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, companyId }: AccountKey,
): Promise<{ secret: string; expiresAt: Date } | undefined> {
  const { secret, hash, expiresAt } = newInvitation(new Date());
  return prisma.$transaction(async (tx) => {
    const { count } = await tx.account.updateMany({
      where: { id, companyId, active: true },
      data: { invitationHash: hash, invitationExpiresAt: expiresAt },
    });
    if (count === 0) return undefined;
    const subject = { kind: 'account', id };
    const detail = { expires_at: expiresAt.toISOString() };
    await auditIn(tx, actor, [{ action: 'invitations.create', subject, companyId, detail }]);
    return { secret, expiresAt };
  });
}

/** Takes an invitation back that nobody has accepted. @returns whether there was one */
export async function revokeInvitation(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, companyId }: AccountKey,
): Promise<boolean> {
  return prisma.$transaction(async (tx) => {
    const { count } = await tx.account.updateMany({
      where: { id, companyId, invitationHash: { not: null } },
      data: { invitationHash: null, invitationExpiresAt: null },
    });
    if (count === 0) return false;
    const subject = { kind: 'account', id };
    await auditIn(tx, actor, [{ action: 'invitations.revoke', subject, companyId }]);
    return true;
  });
}
