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
import { type Database, PostgresClient, requireSession } from '../store/database.ts';
import { applyMigrations, type LockPatience } from '../store/migrations.ts';

/**
 * Advisory locks of Postgres: any constants will do that are neither each other's, nor Prisma's own (72707369), nor BullMQ's.
 * The first is held by the session that migrates, for as long as that takes.
 */
export const MIGRATION_LOCK = 7_365_746;

/** Held by the transaction that makes the first workspace. */
const BOOTSTRAP_LOCK = 7_365_747;

/** Said while a migration cannot have a table. */
export const WAITS_FOR_A_TABLE = 'waits for a table, and lets others use it meanwhile';

/**
 * Brings the tables up to date: ours as `prisma migrate deploy` would, with its record in
 * `_prisma_migrations`, and BullMQ's where the queue lives in Postgres. Safe to repeat, and safe while
 * another process does the same: it waits for its turn and then finds nothing left to do.
 * @param databaseUrl of Postgres itself, or of a pooler in session mode: the lock belongs to a session
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
    verify: requireSession('a migration'),
  });
  pool.on('error', () => {});
  // The pool does not listen to a connection while it is checked out.
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
      `the Postgres server of DATABASE_URL refuses the connection (${reason}). Start it, or correct DATABASE_URL. Without DATABASE_URL, ${START_COMMAND} runs its own Postgres`,
    );
  } finally {
    await client.end().catch(() => {});
  }
}

/** The workspace that a new installation starts with. */
const FIRST_WORKSPACE = 'default';

/** The company that the tables come with. */
const FIRST_COMPANY = 'default';

/** Settings make these, and nobody in person. */
const FIRST_START: Actor = { kind: 'nobody', name: 'first start', via: 'command_line' };

/**
 * Where there is no workspace yet, makes `default` with one API key that may do everything: `BOOTSTRAP_API_KEY`, or a
 * random one. It belongs to the company `default`, which the tables come with. The first SCIM token of that is
 * `BOOTSTRAP_SCIM_TOKEN`. Safe to race: the workspace and its key are made together, once.
 * @returns the key when it was made now; its secret cannot be had again.
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

/** A token that was revoked stays the first one: nothing brings it back. */
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
