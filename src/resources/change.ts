import type { Prisma } from '../generated/prisma/client.ts';
import { type AuditEntry, auditIn } from '../store/audit.ts';
import type { Context } from './resource.ts';

/** What a change has made, and its entries in the audit. */
export interface Changed<T> {
  result: T;
  /** None: nothing has changed. */
  entries: AuditEntry[];
}

/**
 * Commits what `work` does by Prisma together with its entries in the audit, or neither.
 * @throws what `work` throws
 */
export function change<T>(
  { database: { prisma }, actor }: Pick<Context, 'database' | 'actor'>,
  work: (tx: Prisma.TransactionClient) => Promise<Changed<T>>,
): Promise<T> {
  return prisma.$transaction(async (tx) => {
    const { result, entries } = await work(tx);
    if (entries.length > 0) await auditIn(tx, actor, entries);
    return result;
  });
}
