import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from '../generated/prisma/client.ts';
import { type Database, IDLE_TIMEOUT, openPool, type PoolOptions } from './database.ts';
import { ROW_CONNECTIONS } from './pool-sizes.ts';
import { PATIENCE, PostgresClient } from './postgres-client.ts';

/** Milliseconds for the statements of a transaction of Prisma, which can wait for locks. Prisma's default is 5 s. */
const TRANSACTION_MS = 15_000;

/**
 * Opens pool and Prisma client. Both connect with the first statement. In a file of its own, because Prisma
 * would be a tenth of the code that a worker loads and does not use.
 *
 * @param size maximum number of connections of the pool
 */
export function openDatabase(url: string, size: number, options: PoolOptions = {}): Database {
  const { patience = PATIENCE, session } = options;
  const pool = openPool(url, size, options);
  const prisma = new PrismaClient({
    // By default, a transaction waits for a connection for only 2 s, which is shorter than a statement of the pool waits.
    transactionOptions: { maxWait: patience.connection, timeout: TRANSACTION_MS },
    adapter: new PrismaPg({
      Client: PostgresClient,
      connectionString: url,
      // Sent with the startup message if no pooler is between.
      ...(session && { session }),
      max: Math.min(size, ROW_CONNECTIONS),
      idleTimeoutMillis: IDLE_TIMEOUT,
      connectionTimeoutMillis: patience.connection,
      ...(patience.statement !== undefined && { query_timeout: patience.statement }),
    }),
  });
  return {
    pool,
    prisma,
    async stop() {
      await Promise.all([pool.end(), prisma.$disconnect()]);
    },
  };
}
