import type { Installation } from './admin/installation.ts';
import { changeLanes } from './admin/queue.ts';
import { type Config, readConfig } from './platform/config.ts';
import { describeFailure } from './platform/format.ts';
import { createLog, type Log } from './platform/log.ts';
import { databaseUrl, directDatabaseUrl } from './processes/dependencies.ts';
import { bootstrap, migrate, requirePostgres, WAITS_FOR_A_TABLE } from './processes/migrate.ts';
import type { Failure, Prepared } from './start/preparation.ts';
import { readSpread, SILENCE_MS } from './store/installation.ts';
import { openDatabase } from './store/open-database.ts';

/**
 * The step of `npm start` before its processes run: creates the tables and the first workspace with its API key, and follows
 * LANES and SHARDS. It is a process of its own, because the code that it loads takes 60 MB, and `npm start` runs on.
 */
async function prepare(): Promise<Prepared> {
  const config = readConfig();
  const log = createLog('start', config.LOG_LEVEL, { format: config.LOG_FORMAT });
  if (config.DEPLOYMENT_FORM !== 'embedded') await requirePostgres(config.DATABASE_URL);
  const applied = await migrate(directDatabaseUrl(config), config.QUEUE, {
    tell: (reason) => log.warn({ reason }, WAITS_FOR_A_TABLE),
  });
  const url = databaseUrl(config);
  const database = openDatabase(url, 1);
  try {
    await followLanes({ config, databaseUrl: url, database }, log);
    const { apiKey } = await bootstrap(database, config);
    return { migrations: applied.length, apiKey };
  } finally {
    await database.stop();
  }
}

/**
 * All processes of this machine are about to start with LANES and SHARDS: an installation that is idle follows them.
 * @throws {Refusal} when its lanes still hold something, or somebody else works them
 */
async function followLanes(installation: Installation, log: Log): Promise<void> {
  const { LANES, SHARDS } = installation.config as Config;
  const spread = await readSpread(installation.database.pool);
  if (spread === undefined) return;
  const before = spread.lanes / spread.shards;
  if (before === LANES && spread.shards === SHARDS) return;
  // Processes of an earlier start that was killed count as there for a while.
  const wait = SILENCE_MS / 1000 + 5;
  const what =
    before === LANES
      ? `changing SHARDS from ${spread.shards} to ${SHARDS}`
      : `changing LANES from ${before} to ${LANES}`;
  const say = (hindrance: string) => log.warn(`${what}: ${hindrance}`);
  await changeLanes(installation, { lanes: LANES, shards: SHARDS, wait, say });
  log.info({ lanes: LANES, before }, 'number of lanes changed');
}

/** Sends the result to `npm start`, and exits then. */
function finish(prepared: Prepared | Failure): void {
  process.send?.(prepared, () => process.exit(0));
}

process.once('disconnect', () => process.exit(1));
// Ctrl-C reaches this process as well. A migration that has begun is finished.
process.on('SIGINT', () => {});
prepare().then(finish, (error: unknown) => finish({ failure: describeFailure(error) }));
