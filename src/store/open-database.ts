import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from '../generated/prisma/client.ts';
import {
  type Database,
  IDLE_TIMEOUT,
  openPool,
  PATIENCE,
  type PoolOptions,
  PostgresClient,
} from './database.ts';
import { ROW_CONNECTIONS } from './pool-sizes.ts';

/**
 * Opens lazily: the first statement connects. Apart from the pool, since Prisma is a tenth of what a worker would load,
 * which never asks it anything.
 *
 * @param size most connections of the pool
 */
export function openDatabase(url: string, size: number, options: PoolOptions = {}): Database {
  const { patience = PATIENCE } = options;
  const pool = openPool(url, size, options);
  const prisma = new PrismaClient({
    adapter: new PrismaPg({
      Client: PostgresClient,
      connectionString: url,
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
