import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { type Config, ConfigError } from '../platform/config.ts';
import { START_COMMAND } from '../platform/files.ts';
import { messageOf } from '../platform/log.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { migrateQueue } from '../queue/postgres-queue.ts';
import { permissions } from '../schemas/permissions.ts';
import { type Actor, auditIn } from '../store/audit.ts';
import { describeApiKey, describeScimToken, newApiKey } from '../store/credentials.ts';
import { type Database, requireSession } from '../store/database.ts';
import { applyMigrations, type LockPatience } from '../store/migrations.ts';
import { PostgresClient } from '../store/postgres-client.ts';

/**
 * Advisory locks of Postgres. The numbers must differ from each other, from Prisma's lock (72707369) and from BullMQ's.
 * The session of a migration holds this lock until the migration has finished.
 */
const MIGRATION_LOCK = 7_365_746;

/** Held by the transaction that creates the first workspace. */
const BOOTSTRAP_LOCK = 7_365_747;

/** Logged while a migration cannot lock a table. */
export const WAITS_FOR_A_TABLE = 'waits for a table, and lets others use it meanwhile';

/**
 * Applies the missing migrations: Penstock's, with records in `_prisma_migrations` like `prisma migrate deploy`, and
 * those of BullMQ if the queue is in Postgres. It is idempotent and safe to run concurrently: a second process waits
 * for the lock and then finds that nothing is missing.
 * @param databaseUrl URL of Postgres itself, or of a pooler in session mode, because the lock belongs to a session
 * @param patience how to wait for tables that others have locked
 * @returns the names of Penstock's migrations that were applied, in order
 * @throws {Error} with the migration that failed and Postgres's reason. Then nothing has changed
 */
export async function migrate(
  databaseUrl: string,
  queue: QueueConnection['kind'] = 'postgres',
  patience: Partial<LockPatience> = {},
): Promise<string[]> {
  // A pool with one connection: Prisma's adapter accepts only a pool, and lock and transaction must use the same
  // session.
  const pool = new pg.Pool({
    Client: PostgresClient,
    connectionString: databaseUrl,
    max: 1,
    idleTimeoutMillis: 0,
    verify: requireSession('a migration'),
  });
  pool.on('error', () => {});
  // The pool does not handle errors of a connection while it is checked out.
  pool.on('connect', (client) => client.on('error', () => {}));
  try {
    await pool.query('select pg_advisory_lock($1)', [MIGRATION_LOCK]);
    const applied = await applyMigrations(pool, patience);
    if (queue === 'postgres') {
      const client = await pool.connect();
      try {
        await migrateQueue(client);
      } finally {
        client.release();
      }
    }
    return applied;
  } finally {
    await pool.end();
  }
}

/** Maximum milliseconds for the first answer of a Postgres server. */
const PATIENCE_MS = 10_000;

/**
 * Checks once that the Postgres of DATABASE_URL accepts connections, for commands that cannot start without it.
 * @throws {ConfigError} with the setting, the reason and the fix
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
      `the Postgres server of DATABASE_URL refuses the connection (${reason}). Start it, or correct DATABASE_URL. Without DATABASE_URL, ${START_COMMAND} runs its own Postgres`,
    );
  } finally {
    await client.end().catch(() => {});
  }
}

/** Name of the first workspace of a new installation. */
const FIRST_WORKSPACE = 'default';

/** Name of the company that the migrations create. */
const FIRST_COMPANY = 'default';

/** The actor in the audit log, because settings create these rows and not a user. */
const FIRST_START: Actor = { kind: 'nobody', name: 'first start', via: 'command_line' };

/**
 * Creates the workspace `default` if no workspace exists, with one API key that has all permissions:
 * `BOOTSTRAP_API_KEY`, or a random key. The workspace belongs to the company `default`, which the migrations create.
 * `BOOTSTRAP_SCIM_TOKEN` becomes the first SCIM token of this company. It is safe to run concurrently, because one
 * transaction creates workspace and key.
 * @returns the key if it was created now. Its secret cannot be read later
 */
export async function bootstrap(
  { prisma }: Database,
  config: Pick<Config, 'BOOTSTRAP_API_KEY'> &
    Partial<Pick<Config, 'BOOTSTRAP_SCIM_TOKEN' | 'BOOTSTRAP_SCIM_ORIGIN'>>,
): Promise<{ apiKey?: string }> {
  return prisma.$transaction(async (tx) => {
    await tx.$executeRaw`select pg_advisory_xact_lock(${BOOTSTRAP_LOCK})`;
    await setFirstScimToken(tx, config);
    if (await tx.workspace.findFirst()) return {};
    const key = config.BOOTSTRAP_API_KEY ? describeApiKey(config.BOOTSTRAP_API_KEY) : newApiKey();
    const [workspaceId, keyId] = [uuidv7(), uuidv7()];
    await tx.workspace.create({
      data: {
        id: workspaceId,
        name: FIRST_WORKSPACE,
        apiKeys: {
          create: {
            id: keyId,
            name: 'bootstrap',
            identifier: key.identifier,
            keyHash: new Uint8Array(key.hash),
            permissions: [...permissions],
          },
        },
      },
    });
    const detail = { name: FIRST_WORKSPACE };
    await auditIn(tx, FIRST_START, [
      { action: 'workspaces.create', subject: { kind: 'workspace', id: workspaceId }, workspaceId, detail },
      {
        ...{ action: 'api_keys.create', subject: { kind: 'api_key', id: keyId }, workspaceId },
        detail: { name: 'bootstrap', permissions: [...permissions], ip_allowlist: [] },
      },
    ]);
    return { apiKey: key.secret };
  });
}

type Transaction = Parameters<Parameters<Database['prisma']['$transaction']>[0]>[0];

/** Creates the first SCIM token. A revoked token also counts as the first, so it is not created again. */
async function setFirstScimToken(
  tx: Transaction,
  {
    BOOTSTRAP_SCIM_TOKEN: secret,
    BOOTSTRAP_SCIM_ORIGIN: origin,
  }: Partial<Pick<Config, 'BOOTSTRAP_SCIM_TOKEN' | 'BOOTSTRAP_SCIM_ORIGIN'>>,
): Promise<void> {
  if (!secret || !origin) return;
  const company = await tx.company.findUnique({ where: { name: FIRST_COMPANY } });
  if (company === null || (await tx.scimToken.findFirst({ where: { companyId: company.id } }))) return;
  const { identifier, hash } = describeScimToken(secret);
  const id = uuidv7();
  await tx.scimToken.create({
    data: {
      id,
      companyId: company.id,
      name: 'bootstrap',
      identifier,
      tokenHash: new Uint8Array(hash),
      origin,
    },
  });
  const subject = { kind: 'scim_token', id };
  const detail = { name: 'bootstrap', origin };
  await auditIn(tx, FIRST_START, [{ action: 'scim_tokens.issue', subject, companyId: company.id, detail }]);
}
