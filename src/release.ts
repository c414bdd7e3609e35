import { type Config, ConfigError, readConfig } from './platform/config.ts';
import { START_COMMAND } from './platform/files.ts';
import { describeFailure } from './platform/format.ts';
import { createLog, type Log } from './platform/log.ts';
import { directDatabaseUrl } from './processes/dependencies.ts';
import { bootstrap, migrate, requirePostgres, WAITS_FOR_A_TABLE } from './processes/migrate.ts';
import { openPool, type Pool } from './store/database.ts';
import { distribute, requireCitus } from './store/distribute.ts';
import { isDistributed } from './store/distributed.ts';
import { openDatabase } from './store/open-database.ts';
import { forgetProcesses, SILENT_SECONDS } from './store/processes.ts';

/**
 * Runs the process `release`, which must succeed before processes of a new version start: migrates the database of
 * `DATABASE_URL`, distributes its tables if `DISTRIBUTE` is `citus`, and creates the first workspace if none exists.
 * The process exits with 0. After an error, it prints one line with the reason and exits with 1.
 */
async function release(): Promise<void> {
  const config = readConfig();
  const log = createLog('release', config.LOG_LEVEL, { format: config.LOG_FORMAT });
  if (config.DEPLOYMENT_FORM === 'embedded') {
    throw new ConfigError(
      `wrong setting: DATABASE_URL is empty; ${START_COMMAND} migrates the embedded Postgres itself`,
    );
  }
  await requirePostgres(directDatabaseUrl(config));
  if (config.DISTRIBUTE === 'citus') await withPool(directDatabaseUrl(config), requireCitus);
  const applied = await migrate(directDatabaseUrl(config), config.QUEUE, {
    onRetry: (reason) => log.warn({ reason }, WAITS_FOR_A_TABLE),
  });
  log.info({ migrations: applied.length }, applied.length > 0 ? 'migrated' : 'tables are up to date');
  await forgetEarlier(config, log);
  await distributeTables(config, log);
  const apiKey = await createFirstWorkspace(config);
  if (apiKey) log.info('created the workspace default');
  if (apiKey && !config.BOOTSTRAP_API_KEY) {
    process.stdout.write(
      `\nAPI key of the workspace default, shown this once: ${apiKey}\nIf this output is kept, create another key with penstock keys create and revoke this one.\n\n`,
    );
  }
}

/** Removes processes that a restored backup lists: they ran before the backup was restored. */
async function forgetEarlier(config: Config, log: Log): Promise<void> {
  await withPool(directDatabaseUrl(config), async (pool) => {
    const forgotten = await forgetProcesses(pool, SILENT_SECONDS);
    if (forgotten.length > 0) log.info({ processes: forgotten.length }, 'silent processes were removed');
  });
}

/**
 * Distributes the tables that are not distributed yet. If the tables of the database were distributed before, this
 * includes tables that a migration created since then, whatever `DISTRIBUTE` is.
 */
async function distributeTables(config: Config, log: Log): Promise<void> {
  await withPool(directDatabaseUrl(config), async (pool) => {
    if (config.DISTRIBUTE !== 'citus' && !(await isDistributed(pool))) return;
    const tables = await distribute(pool, (table) =>
      log.info({ table }, 'table was distributed over the nodes of Citus'),
    );
    log.info({ tables: tables.length }, 'tables were distributed over the nodes of Citus by workspace');
  });
}

async function withPool(url: string, work: (pool: Pool) => Promise<void>): Promise<void> {
  const pool = openPool(url, 1);
  try {
    await work(pool);
  } finally {
    await pool.end();
  }
}

/** Returns the API key if the workspace was created now. */
async function createFirstWorkspace(config: Config): Promise<string | undefined> {
  const database = openDatabase(directDatabaseUrl(config), 1);
  try {
    const { apiKey } = await bootstrap(database, config);
    return apiKey;
  } finally {
    await database.stop();
  }
}

try {
  await release();
} catch (error) {
  process.stderr.write(`release: ${describeFailure(error)}\n`);
  process.exitCode = 1;
}
