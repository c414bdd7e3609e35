import pg from 'pg';
import { ConfigError } from '../platform/config.ts';
import { messageOf } from '../platform/log.ts';
import { runMigrations } from '../queue/bullmq.ts';
import { QUEUE_SCHEMA, type QueueConnection } from '../queue/connection.ts';
import { keepOrder, vacuumOften } from '../queue/postgres-queue.ts';
import { PostgresClient } from '../store/database.ts';
import { applyMigrations, type LockPatience } from '../store/migrations.ts';

/** Any constant will do; it only must not be Prisma's own (72707369) nor BullMQ's. */
export const MIGRATION_LOCK = 7_365_746;

/** Said while a migration cannot have a table. */
export const WAITS_FOR_A_TABLE = 'waits for a table, and lets others use it meanwhile';

/**
 * Brings the tables up to date: ours as `prisma migrate deploy` would, with its record in
 * `_prisma_migrations`, and BullMQ's where the queue lives in Postgres. Safe to repeat, and safe while
 * another process does the same: it waits for its turn and then finds nothing left to do.
 * @param patience with tables that somebody else holds
 * @returns the names of our migrations that were applied now, in order.
 * @throws {Error} naming the migration that failed and Postgres's reason; nothing is changed then.
 */
export async function migrate(
  databaseUrl: string,
  queue: QueueConnection['kind'] = 'postgres',
  patience: Partial<LockPatience> = {},
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
    const applied = await applyMigrations(pool, patience);
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

/** Milliseconds in which a Postgres has to answer somebody who begins with it. */
const PATIENCE_MS = 10_000;

/**
 * Asks the Postgres of DATABASE_URL once, for whoever cannot begin without it.
 * @throws {ConfigError} naming the setting, the reason, and what to do
 */
export async function requirePostgres(databaseUrl: string): Promise<void> {
  const client = new PostgresClient({
    connectionString: databaseUrl,
    connectionTimeoutMillis: PATIENCE_MS,
  });
  client.on('error', () => {});
  try {
    await client.connect();
  } catch (error) {
    const reason = messageOf(error) || String((error as { code?: unknown }).code ?? 'no answer');
    throw new ConfigError(
      `the Postgres of DATABASE_URL does not let us in (${reason}): start it, or correct DATABASE_URL; without DATABASE_URL npm start runs one of its own`,
    );
  } finally {
    await client.end().catch(() => {});
  }
}
