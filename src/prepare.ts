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
 * Prepares an installation before `npm start` runs its processes: migrates the database, changes the number of lanes and
 * shards to LANES and SHARDS, and creates the first workspace with its API key. It runs in its own process, because its
 * code takes 60 MB of memory, and `npm start` runs as long as the service.
 */
async function prepare(): Promise<Prepared> {
  const config = readConfig();
  const log = createLog('start', config.LOG_LEVEL, { format: config.LOG_FORMAT });
  if (config.DEPLOYMENT_FORM !== 'embedded') await requirePostgres(config.DATABASE_URL);
  const applied = await migrate(directDatabaseUrl(config), config.QUEUE, {
    onRetry: (reason) => log.warn({ reason }, WAITS_FOR_A_TABLE),
  });
  const url = databaseUrl(config);
  const database = openDatabase(url, 1);
  try {
    await applyLanes({ config, databaseUrl: url, database }, log);
    const { apiKey } = await bootstrap(database, config);
    return { migrations: applied.length, apiKey };
  } finally {
    await database.stop();
  }
}

/**
 * Changes the lanes and shards of an installation to LANES and SHARDS, with which all processes are about to start. A new
 * installation has no lanes yet, and gets them from its first process.
 * @throws {Refusal} if the lanes still hold jobs, or if another process still runs after SILENCE_MS + 5 s
 */
async function applyLanes(installation: Installation, log: Log): Promise<void> {
  const { LANES, SHARDS } = installation.config as Config;
  const spread = await readSpread(installation.database.pool);
  if (spread === undefined) return;
  const before = spread.lanes / spread.shards;
  if (before === LANES && spread.shards === SHARDS) return;
  // Processes that were killed count as running until SILENCE_MS after their last heartbeat.
  const wait = SILENCE_MS / 1000 + 5;
  const what =
    before === LANES
      ? `changing SHARDS from ${spread.shards} to ${SHARDS}`
      : `changing LANES from ${before} to ${LANES}`;
  const onWait = (hindrance: string) => log.warn(`${what}: ${hindrance}`);
  await changeLanes(installation, { lanes: LANES, shards: SHARDS, wait, onWait });
  log.info({ lanes: LANES, before }, 'number of lanes changed');
}

/** Sends the result to `npm start`, and then exits. */
function finish(prepared: Prepared | Failure): void {
  process.send?.(prepared, () => process.exit(0));
}

process.once('disconnect', () => process.exit(1));
// Ctrl-C also sends SIGINT to this process. Ignore it, so that a migration in progress is finished.
process.on('SIGINT', () => {});
prepare().then(finish, (error: unknown) => finish({ failure: describeFailure(error) }));
