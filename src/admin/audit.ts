import { userInfo } from 'node:os';
import type { Prisma } from '../generated/prisma/client.ts';
import { type Actor, type AuditEntry, auditIn } from '../store/audit.ts';
import type { Database } from '../store/database.ts';

/** Who it is, as far as a command knows: the account of the machine that it runs under. */
export function commandLine(): Actor {
  return { kind: 'operator', name: userInfo().username, via: 'command_line' };
}

/** What a change has made, and the entries that tell of it. */
interface Changed<T> {
  result: T;
  /** None: nothing has changed. */
  entries: AuditEntry[];
}

/**
 * Commits what `work` does by Prisma together with its entries in the audit, or neither.
 * @throws what `work` throws
 */
export function change<T>(
  { prisma }: Database,
  work: (tx: Prisma.TransactionClient) => Promise<Changed<T>>,
): Promise<T> {
  return prisma.$transaction(async (tx) => {
    const { result, entries } = await work(tx);
    if (entries.length > 0) await auditIn(tx, commandLine(), entries);
    return result;
  });
}
