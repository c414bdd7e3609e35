import type { Prisma } from '../../generated/prisma/client.ts';
import type { Database } from '../database.ts';

/**
 * A write that Postgres itself ends after a second, in less time than the caller waits for it: one that was
 * answered with 503 has not been made, and will not be made a moment later, when a lock is given back.
 */
export async function inTime<T>(prisma: Database['prisma'], write: Prisma.PrismaPromise<T>): Promise<T> {
  const [, written] = await prisma.$transaction([
    prisma.$executeRaw`set local statement_timeout = 1000`,
    write,
  ]);
  return written;
}
