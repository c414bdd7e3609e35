import type { Prisma } from '../generated/prisma/client.ts';
import { type AuditEntry, auditedByPrisma } from '../store/audit.ts';
import type { Context } from './resource.ts';

/** The result of a change and its audit entries. */
export interface Changed<T> {
  result: T;
  /** Empty if nothing has changed. */
  entries: AuditEntry[];
}

/**
 * Commits the Prisma changes of `work` and their audit entries in one transaction.
 * @throws the errors of `work`
 */
export function change<T>(
  { database: { prisma }, actor }: Pick<Context, 'database' | 'actor'>,
  work: (tx: Prisma.TransactionClient) => Promise<Changed<T>>,
): Promise<T> {
  return auditedByPrisma(prisma, actor, work);
}
