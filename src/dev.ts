import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import type { DevOptions } from './admin/command.ts';
import { keepIntegrationKey } from './embedded/address.ts';
import type { EmbeddedPostgres } from './embedded/postgres.ts';
import { type Config, ConfigError } from './platform/config.ts';
import { scratchFolders } from './platform/files.ts';
import { describeFailure } from './platform/format.ts';
import { reachable } from './platform/lifecycle.ts';
import { createLog, type Log } from './platform/log.ts';
import { rest, setPollPace } from './platform/poll.ts';
import { collectMains, type Host } from './processes/host.ts';
import { listenForConsole } from './start/console-listener.ts';
import { credentialsOf, readDevConfig } from './start/dev-settings.ts';
import { claimPorts } from './start/postgres.ts';
import { endOfStart } from './start/processes.ts';
import { startFromTemplate } from './start/template.ts';

const folders = scratchFolders('dev');

/** Milliseconds without a request after which the process is idle. */
const IDLE_MS = 3000;

/** The factor by which an idle process polls its stores less often, and the longest interval in milliseconds. */
const IDLE_FACTOR = 10;
const MAX_IDLE_MS = 15_000;

/** Milliseconds until sync starts. Most tests do not need it. */
const SYNC_DELAY_MS = 1000;

/**
 * `penstock dev`: web, worker, sync and console in this process, with an embedded Postgres whose data is removed at the end.
 * @returns the exit code
 */
export async function dev(options: DevOptions): Promise<number> {
  // Validate the options before a folder is created.
  const checked = readDevConfig(options, '.penstock');
  const seed = options.seed === undefined ? undefined : readSeedFile(options.seed);
  const log = createLog('start', checked.LOG_LEVEL, { format: checked.LOG_FORMAT, to: 2 });
  const end = endOfStart(log);
  // The channel closes when the program that started this one exits.
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
  const home = await folders.make();
  let postgres: EmbeddedPostgres | undefined;
  const logs: Log[] = [];
  /** Aborted when sync must start immediately, or when the program ends. */
  const syncStart = new AbortController();
  end.signal.addEventListener('abort', () => syncStart.abort(), { once: true });
  let noteStarted = () => {};
  const everythingRuns = new Promise<void>((resolve) => {
    noteStarted = resolve;
  });
  try {
    const ports = await claimPorts({ ...checked, WORKER_PORT: 0, SYNC_PORT: 0 }, 1000);
    const config: Config = Object.freeze({ ...checked, ...ports, DATA_DIR: home });
    // Modules load while Postgres starts.
    const [server, mains] = await Promise.all([
      startFromTemplate({ home, log, credentials: credentialsOf(config), fill: (url) => fill(url, config) }),
      collectMains(() => Promise.all([import('./web.ts'), import('../workers/worker.ts')])),
    ]);
    postgres = server;
    if (end.signal.aborted) return 0;
    void postgres.exited.then(() => end.because('the embedded Postgres exited unexpectedly', 1));
    keepIntegrationKey(home);
    const { openStores } = await import('./start/stores.ts');
    const stores = openStores(postgres.url, config);
    const host: Host = {
      config,
      stores,
      logTo: 2,
      control: {
        ...createControlSignals(),
        apiKey: config.BOOTSTRAP_API_KEY,
        startAll() {
          syncStart.abort();
          return everythingRuns;
        },
        async definitions() {
          const { seedDefinitions } = await import('./start/seed.ts');
          return seedDefinitions(stores.database, config);
        },
      },
      // All data is removed at the end, so services do not have to finish their work.
      stopAtEnd: (_services, mainLog) => void logs.push(mainLog),
    };
    const run = (name: string, from = mains) =>
      from.get(name)!(host).catch((error: Error) => end.because(`${name}: ${error.message}`, 1));
    await Promise.all([run('web'), run('worker')]);
    await listenForConsole({ port: config.BOARD_PORT, host: config.BOARD_HOST }, async () => {
      const loaded = await collectMains(() => import('./board.ts'));
      return () => run('board', loaded);
    });
    if (seed !== undefined && !end.signal.aborted) await applySeed(seed, config);
    if (!end.signal.aborted) greet(config, options);
    // Load sync after a delay, so that loading its modules does not slow down the first requests of a test.
    await rest(SYNC_DELAY_MS, syncStart.signal);
    if (end.signal.aborted) return await end.requested;
    const loaded = await collectMains(() => import('../workers/sync.ts'));
    await run('sync', loaded);
    noteStarted();
    return await end.requested;
  } catch (error) {
    if (end.signal.aborted) return 0;
    throw error;
  } finally {
    end.over();
    // The services are still running, and would log errors because Postgres stops.
    for (const mainLog of logs) mainLog.level = 'silent';
    await postgres?.stop();
    await rm(home, { recursive: true, force: true });
    await folders.tidy();
  }
}

type Signals = Pick<NonNullable<Host['control']>, 'onForget' | 'forget' | 'noteActivity'>;

function createControlSignals(): Signals {
  const listeners: (() => void)[] = [];
  let lastActivity = performance.now();
  const isIdle = () => performance.now() - lastActivity > IDLE_MS;
  const wake = setPollPace((every) =>
    isIdle() ? Math.max(every, Math.min(every * IDLE_FACTOR, MAX_IDLE_MS)) : every,
  );
  return {
    onForget: (listener) => void listeners.push(listener),
    forget() {
      for (const listener of listeners) listener();
    },
    noteActivity() {
      const wasIdle = isIdle();
      lastActivity = performance.now();
      if (wasIdle) wake();
    },
  };
}

/** Creates the tables and the first workspace. */
async function fill(url: string, config: Config): Promise<void> {
  const { bootstrap, migrate } = await import('./processes/migrate.ts');
  const { openDatabase } = await import('./store/open-database.ts');
  const { prepareControl } = await import('./store/snapshots.ts');
  await migrate(url);
  const database = openDatabase(url, 1);
  try {
    await bootstrap(database, config);
  } finally {
    await database.stop();
  }
  await prepareControl(url);
}

/** @throws {ConfigError} if the file cannot be read */
function readSeedFile(file: string): { file: string; text: string } {
  try {
    return { file, text: readFileSync(file, 'utf8') };
  } catch (error) {
    throw new ConfigError(`the file of --seed cannot be read: ${describeFailure(error)}`);
  }
}

/**
 * Applies the file of `--seed`, and keeps the result as the snapshot `seed`.
 * @throws {ConfigError} if the seed is refused. The message lists the refused positions
 */
async function applySeed({ file, text }: { file: string; text: string }, config: Config): Promise<void> {
  const control = async (path: string, body: string) => {
    const response = await fetch(`${urlOf(config)}/_dev/${path}`, { method: 'POST', body });
    const answer = (await response.json()) as { message: string; errors?: string[] };
    if (!response.ok)
      throw new ConfigError(`the seed ${file} was refused: ${answer.errors?.join('; ') ?? answer.message}`);
  };
  await control('seed', text);
  await control('snapshot', JSON.stringify({ name: 'seed' }));
}

const urlOf = ({ HOST, PORT }: Config): string => `http://${reachable(HOST)}:${PORT}`;

function greet(config: Config, { json }: DevOptions): void {
  const facts = {
    url: urlOf(config),
    api_key: config.BOOTSTRAP_API_KEY,
    scim_token: config.BOOTSTRAP_SCIM_TOKEN,
    scim_origin: config.BOOTSTRAP_SCIM_ORIGIN,
    console: `http://${reachable(config.BOARD_HOST)}:${config.BOARD_PORT}`,
    console_user: config.BOARD_USER,
    console_password: config.BOARD_PASSWORD,
    pid: process.pid,
  };
  if (json) return void process.stdout.write(`${JSON.stringify(facts)}\n`);
  process.stdout.write(`
  Penstock is ready for tests. All data is removed when it stops.

  API         ${facts.url}   (documentation: ${facts.url}/docs)
  API key     ${facts.api_key}
  SCIM token  ${facts.scim_token}   (header X-Request-Origin: ${facts.scim_origin})
  Console     ${facts.console}   user ${facts.console_user}, password ${facts.console_password}

`);
}
