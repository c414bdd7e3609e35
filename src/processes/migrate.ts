import pg from 'pg';
import { runMigrations } from '../queue/bullmq.ts';
import { QUEUE_SCHEMA, type QueueConnection } from '../queue/connection.ts';
import { keepOrder, vacuumOften } from '../queue/postgres-queue.ts';
import { PostgresClient } from '../store/database.ts';
import { applyMigrations } from '../store/migrations.ts';

/** Any constant will do; it only must not be Prisma's own (72707369) nor BullMQ's. */
export const MIGRATION_LOCK = 7_365_746;

/**
 * Brings the tables up to date: ours as `prisma migrate deploy` would, with its record in
 * `_prisma_migrations`, and BullMQ's where the queue lives in Postgres. Safe to repeat, and safe while
 * another process does the same: it waits for its turn and then finds nothing left to do.
 * @returns the names of our migrations that were applied now, in order.
 * @throws {Error} naming the migration that failed and Postgres's reason; nothing is changed then.
 */
export async function migrate(
  databaseUrl: string,
  queue: QueueConnection['kind'] = 'postgres',
): Promise<string[]> {
  // A pool of one: Prisma's adapter takes nothing else, and the lock and the transaction need one session.
  const pool = new pg.Pool({
    Client: PostgresClient,
    connectionString: databaseUrl,
    max: 1,
    idleTimeoutMillis: 0,
  });
  pool.on('error', () => {});
  try {
    await pool.query('select pg_advisory_lock($1)', [MIGRATION_LOCK]);
    const applied = await applyMigrations(pool);
    if (queue === 'postgres') {
      const client = await pool.connect();
      try {
        await runMigrations(client, QUEUE_SCHEMA);
        await keepOrder(client);
        await vacuumOften(client);
      } finally {
        client.release();
      }
    }
    return applied;
  } finally {
    await pool.end();
  }
}
