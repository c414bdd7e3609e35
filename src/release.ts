import { bootstrap } from './admin/bootstrap.ts';
import { describeFailure } from './admin/command.ts';
import { type Config, ConfigError, readConfig } from './platform/config.ts';
import { createLog } from './platform/log.ts';
import { migrate, requirePostgres, WAITS_FOR_A_TABLE } from './processes/migrate.ts';
import { queueKind } from './queue/connection.ts';
import { openDatabase } from './store/open-database.ts';

/**
 * The step before a new version runs: brings the tables of `DATABASE_URL` up to date, makes the first
 * workspace where there is none, and exits 0; with 1 and one line that says why otherwise.
 */
async function release(): Promise<void> {
  const config = readConfig();
  const log = createLog('release', config.LOG_LEVEL, config.LOG_FORMAT);
  if (!config.DATABASE_URL) {
    throw new ConfigError(
      'wrong setting: DATABASE_URL is empty; npm start migrates the embedded Postgres itself',
    );
  }
  await requirePostgres(config.DATABASE_URL);
  const applied = await migrate(config.DATABASE_URL, queueKind(config), {
    tell: (reason) => log.warn({ reason }, WAITS_FOR_A_TABLE),
  });
  log.info({ applied }, 'migrated');
  const apiKey = await makeFirstWorkspace(config);
  if (apiKey) log.info('made the workspace default');
  if (apiKey && !config.BOOTSTRAP_API_KEY) {
    process.stdout.write(`\nAPI key of the workspace default, shown this once: ${apiKey}\n\n`);
  }
}

async function makeFirstWorkspace(config: Config): Promise<string | undefined> {
  const database = openDatabase(config.DATABASE_URL, 1);
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
