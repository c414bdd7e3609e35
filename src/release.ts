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
 * The step before a new version runs. Brings the tables of `DATABASE_URL` up to date, distributes them where
 * `DISTRIBUTE` says so, and makes the first workspace where there is none. It exits 0; otherwise with 1, and one line
 * that says why.
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
    tell: (reason) => log.warn({ reason }, WAITS_FOR_A_TABLE),
  });
  log.info({ migrations: applied.length }, 'migrated');
  await forgetEarlier(config, log);
  await distributeTables(config, log);
  const apiKey = await makeFirstWorkspace(config);
  if (apiKey) log.info('created the workspace default');
  if (apiKey && !config.BOOTSTRAP_API_KEY) {
    process.stdout.write(
      `\nAPI key of the workspace default, shown this once: ${apiKey}\nIf this output is kept, create another key with penstock keys create and revoke this one.\n\n`,
    );
  }
}

/** Once distributed, tables that a migration has made are as well, whatever the setting says. */
/** Removes processes that a restored backup lists: they belong to an earlier present of the installation. */
async function forgetEarlier(config: Config, log: Log): Promise<void> {
  await withPool(directDatabaseUrl(config), async (pool) => {
    const forgotten = await forgetProcesses(pool, SILENT_SECONDS);
    if (forgotten.length > 0) log.info({ processes: forgotten.length }, 'silent processes were removed');
  });
}

async function distributeTables(config: Config, log: Log): Promise<void> {
  await withPool(directDatabaseUrl(config), async (pool) => {
    if (config.DISTRIBUTE !== 'citus' && !(await isDistributed(pool))) return;
    const tables = await distribute(pool, (table) => log.info({ table }, 'table was distributed'));
    log.info({ tables: tables.length }, 'tables were distributed by workspace');
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

async function makeFirstWorkspace(config: Config): Promise<string | undefined> {
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
