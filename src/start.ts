import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { bootstrap } from './admin/bootstrap.ts';
import { describeFailure } from './admin/refusal.ts';
import { type Config, readConfig } from './config.ts';
import { keepIntegrationKey } from './embedded/integration-key.ts';
import { type EmbeddedPostgres, hasEmbeddedPostgres, startEmbeddedPostgres } from './embedded/postgres.ts';
import { createLog, type Log } from './log.ts';
import { packageRoot } from './package-root.ts';
import { queueKind } from './queue/kind.ts';
import { reachable } from './reachable.ts';
import { banner } from './start/banner.ts';
import { type EndOfStart, endOfStart } from './start/end.ts';
import { type FirstKey, firstKey } from './start/first-key.ts';
import { claimPorts, type Ports } from './start/ports.ts';
import { startProcesses } from './start/processes.ts';
import { parseProcfile } from './start/procfile.ts';
import { waitUntilReady } from './start/ready.ts';
import { openDatabase } from './store/database.ts';
import { migrate } from './store/migrate.ts';

/**
 * `npm start`: everything on one machine. Starts what is missing, migrates, runs the processes of the
 * Procfile until it is told to end, and then stops all of it in order.
 * @returns what to exit with.
 */
async function start(): Promise<number> {
  const config = readConfig();
  const log = createLog('start', config.LOG_LEVEL);
  const end = endOfStart(log);
  let postgres: EmbeddedPostgres | undefined;
  let stopProcesses = async () => {};
  try {
    if (!config.DATABASE_URL) {
      // Nothing of an earlier start can have the ports before there is a database: nobody need be waited for.
      if (!hasEmbeddedPostgres(config.DATA_DIR)) await claimPorts(config, 0);
      postgres = await startEmbeddedPostgres(config.DATA_DIR, log);
      postgres.exited.then(() => end.because('the embedded Postgres ended by itself', 1));
    }
    const databaseUrl = postgres?.url ?? config.DATABASE_URL;
    // Before the API key is made, which is shown only once.
    const ports = await claimPorts(config, postgres?.recovered ? config.SHUTDOWN_TIMEOUT_MS + 1000 : 1000);
    const apiKey = await prepare(config, databaseUrl, log);
    if (!end.signal.aborted) stopProcesses = run({ config, ports, databaseUrl, apiKey, end, log });
    return await end.asked;
  } catch (error) {
    // Ctrl-C reaches initdb as well.
    if (end.signal.aborted) return 0;
    throw error;
  } finally {
    end.over();
    await stopProcesses();
    await postgres?.stop();
    log.info('stopped');
  }
}

/** Tables and the first workspace with its API key. */
async function prepare(config: Config, databaseUrl: string, log: Log): Promise<FirstKey> {
  const applied = await migrate(databaseUrl, queueKind(config));
  if (applied.length > 0) log.info({ applied }, 'migrated');
  const database = openDatabase(databaseUrl, 1);
  try {
    const { apiKey } = await bootstrap(database, config);
    return firstKey(config.BOOTSTRAP_API_KEY ? undefined : apiKey);
  } finally {
    await database.stop();
  }
}

interface RunOptions {
  config: Config;
  ports: Ports;
  databaseUrl: string;
  apiKey: FirstKey;
  end: EndOfStart;
  log: Log;
}

/** Of an embedded Postgres there is always one; the processes see only its URL. */
function integrationKey({ INTEGRATION_KEY, DATABASE_URL, DATA_DIR }: Config): string {
  if (DATABASE_URL) return INTEGRATION_KEY;
  return [INTEGRATION_KEY, keepIntegrationKey(DATA_DIR)].filter((key) => key !== '').join(',');
}

/** Runs the processes and greets when they are ready. @returns what stops them. */
function run({ config, ports, databaseUrl, apiKey, end, log }: RunOptions): () => Promise<void> {
  const password = config.BOARD_PASSWORD || randomBytes(12).toString('base64url');
  const procfile = readFileSync(path.join(packageRoot, 'Procfile'), 'utf8');
  let ready = false;
  const stop = startProcesses({
    // What `release` does has been done.
    lines: parseProcfile(procfile).filter(({ name }) => name !== 'release'),
    env: {
      ...process.env,
      DATABASE_URL: databaseUrl,
      PORT: String(ports.PORT),
      BOARD_PORT: String(ports.BOARD_PORT),
      BOARD_PASSWORD: password,
      INTEGRATION_KEY: integrationKey(config),
    },
    log,
    deadline: config.SHUTDOWN_TIMEOUT_MS,
    onHopeless: (name) => {
      if (!ready) end.because(`the process ${name} does not start`, 1);
    },
  });

  const api = `http://${reachable(config.HOST)}:${ports.PORT}`;
  const board = `http://${reachable(config.BOARD_HOST)}:${ports.BOARD_PORT}`;
  const worker = `http://${reachable(config.WORKER_HOST)}:${ports.WORKER_PORT}`;
  // What a newcomer sends first should be there when it is asked for.
  const pages = [`${api}/readyz`, ...(ports.WORKER_PORT ? [`${worker}/readyz`] : []), `${board}/healthz`];
  waitUntilReady(pages, end.signal).then(
    () => {
      if (end.signal.aborted) return;
      ready = true;
      apiKey.shown();
      process.stdout.write(
        banner({
          api,
          board,
          boardUser: config.BOARD_USER,
          boardPassword: password,
          randomPassword: !config.BOARD_PASSWORD,
          apiKey: apiKey.value,
          now: new Date(),
        }),
      );
    },
    (error: Error) => end.because(error.message, 1),
  );
  return stop;
}

start().then(
  (code) => process.exit(code),
  (error: unknown) => {
    process.stderr.write(`npm start: ${describeFailure(error)}\n`);
    process.exit(1);
  },
);
