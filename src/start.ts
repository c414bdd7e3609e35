import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { keepIntegrationKey } from './embedded/address.ts';
import {
  type EmbeddedPostgres,
  hasEmbeddedPostgres,
  SHORT_PROOF,
  startEmbeddedPostgres,
} from './embedded/postgres.ts';
import { type Config, readConfig } from './platform/config.ts';
import { environmentWith } from './platform/environment.ts';
import { packageRoot, START_COMMAND } from './platform/files.ts';
import { describeFailure } from './platform/format.ts';
import { reachable, withTimeout } from './platform/lifecycle.ts';
import { createLog, type Log } from './platform/log.ts';
import { fittingPoolSize } from './start/connections.ts';
import { claimPorts, keepPostgresRunning, type Ports } from './start/postgres.ts';
import { runPreparation } from './start/preparation.ts';
import {
  type EndOfStart,
  endOfStart,
  parseProcfile,
  startProcesses,
  waitUntilReady,
} from './start/processes.ts';

/**
 * Runs `npm start`, which runs Penstock on one machine: in the embedded form, starts Postgres; migrates; runs the processes of
 * the Procfile until a signal or an error; then stops the processes, and Postgres last.
 * @returns the exit status
 */
async function start(): Promise<number> {
  const config = readConfig();
  const log = createLog('start', config.LOG_LEVEL, { format: config.LOG_FORMAT });
  // A limit that cannot be kept is reported before anything is created.
  fittingPoolSize(config);
  const end = endOfStart(log);
  let postgres: EmbeddedPostgres | undefined;
  let stopProcesses = async () => {};
  let stopPostgres = async () => {};
  void warnIfRedisIsDown(config, log);
  try {
    if (config.DEPLOYMENT_FORM === 'embedded') {
      // If there is no database yet, no processes of an earlier start can still use the ports, so the claim does not
      // wait for the ports.
      if (!hasEmbeddedPostgres(config.DATA_DIR)) {
        await claimPorts(config, 0);
        log.info({ data_dir: config.DATA_DIR }, 'creating the database of the first start');
      }
      postgres = await startEmbeddedPostgres(config.DATA_DIR, log, { initdb: [SHORT_PROOF] });
      keepIntegrationKey(config.DATA_DIR);
      const onHopeless = (reason: string) => end.because(reason, 1);
      stopPostgres = keepPostgresRunning(postgres, { log, onHopeless });
    }
    // Check the ports before the API key is created, because the key is shown only once.
    const ports = await claimPorts(config, postgres?.recovered ? config.SHUTDOWN_TIMEOUT_MS + 1000 : 1000);
    const prepared = await runPreparation(environmentWith({ DEPLOYMENT_FORM: config.DEPLOYMENT_FORM }));
    if (prepared.migrations > 0) log.info({ migrations: prepared.migrations }, 'migrated');
    const apiKey = firstKey(config.BOOTSTRAP_API_KEY ? undefined : prepared.apiKey);
    if (!end.signal.aborted) stopProcesses = run({ config, ports, apiKey, end, log });
    return await end.requested;
  } catch (error) {
    // Ctrl-C also interrupts initdb.
    if (end.signal.aborted) return 0;
    throw error;
  } finally {
    end.over();
    await stopProcesses();
    await stopPostgres();
    log.info('stopped');
  }
}

/** Milliseconds in which Redis must answer before a warning is logged. */
const REDIS_TIMEOUT_MS = 3000;

/** Logs once, with the fix, that Redis does not answer. Each process waits for Redis by itself. */
async function warnIfRedisIsDown(config: Config, log: Log): Promise<void> {
  if (!config.REDIS_URL) return;
  // Load the module only if it is needed: it takes much memory, and this process runs as long as the service.
  const { openProducerRedis } = await import('./queue/connection.ts');
  const redis = openProducerRedis(config);
  try {
    await withTimeout(REDIS_TIMEOUT_MS, once(redis, 'ready'));
  } catch (error) {
    log.warn(
      `Redis at REDIS_URL does not answer (${describeFailure(error)}); all processes wait for it. Start Redis, correct REDIS_URL, or remove it to keep the queue in Postgres`,
    );
  } finally {
    redis.disconnect();
  }
}

interface RunOptions {
  config: Config;
  ports: Ports;
  apiKey: FirstKey;
  end: EndOfStart;
  log: Log;
}

/** Starts the processes and prints the banner when they are ready. @returns a function that stops the processes */
function run({ config, ports, apiKey, end, log }: RunOptions): () => Promise<void> {
  const password = config.BOARD_PASSWORD || randomBytes(12).toString('base64url');
  const procfile = readFileSync(path.join(packageRoot, 'Procfile'), 'utf8');
  let ready = false;
  const stop = startProcesses({
    // `runPreparation` has already done the work of `release`.
    lines: parseProcfile(procfile).filter(({ name }) => name !== 'release'),
    env: environmentWith({
      // Processes of the embedded form read the address of Postgres and the integration key from DATA_DIR.
      DEPLOYMENT_FORM: config.DEPLOYMENT_FORM,
      DATABASE_POOL_SIZE: String(fittingPoolSize(config)),
      PORT: String(ports.PORT),
      BOARD_PORT: String(ports.BOARD_PORT),
      BOARD_PASSWORD: password,
    }),
    log,
    deadline: config.SHUTDOWN_DELAY_MS + config.SHUTDOWN_TIMEOUT_MS,
    onRepeatedExit: (name) => {
      if (!ready) end.because(`the process ${name} did not start`, 1);
    },
  });

  const api = `http://${reachable(config.HOST)}:${ports.PORT}`;
  const board = `http://${reachable(config.BOARD_HOST)}:${ports.BOARD_PORT}`;
  const worker = `http://${reachable(config.WORKER_HOST)}:${ports.WORKER_PORT}`;
  // The banner is printed when the pages that its commands use are ready.
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
    process.stderr.write(`${START_COMMAND}: ${describeFailure(error)}\n`);
    process.exit(1);
  },
);

interface BannerFacts {
  /** Address of the API without a trailing slash. */
  api: string;
  /** Address of the console without a trailing slash. */
  board: string;
  boardUser: string;
  boardPassword: string;
  /** Whether the password was generated by this start. A configured password is not printed. */
  randomPassword: boolean;
  /** The API key, if this start created it at random. */
  apiKey: string | undefined;
  now: Date;
}

/** Returns the text that is printed when everything runs, with commands to paste. */
function banner(facts: BannerFacts): string {
  const { api, board, boardUser, boardPassword, randomPassword, apiKey, now } = facts;
  const key = apiKey ?? '$PENSTOCK_API_KEY';
  const password = randomPassword ? boardPassword : '$BOARD_PASSWORD';
  const time = `${now.toISOString().slice(0, 19)}Z`;
  const track = {
    attributes: [{ external_id: 'ada', first_name: 'Ada', favourite_colour: 'teal' }],
    events: [{ external_id: 'ada', name: 'signed_up', time }],
  };
  const readBack = { external_ids: ['ada'] };
  return `
  Penstock is ready.

  API        ${api}   (documentation: ${api}/docs)
  Console    ${board}   user ${boardUser}, ${randomPassword ? `password ${boardPassword} (until the next start)` : 'password as in BOARD_PASSWORD'}
${apiKey ? `  API key    ${apiKey}   (shown this once: save it)\n` : ''}
  Track a user's attributes and an event, read the profile back, sign in to the console:

${post(`${api}/users/track`, key, track)}

${post(`${api}/users/export/ids`, key, readBack)}

curl -sLb '' -o /dev/null -w 'console sign-in: HTTP %{http_code}\\n' -H 'Origin: ${board}' --data-urlencode 'user=${boardUser}' --data-urlencode "password=${password}" ${board}/sign-in

`;
}

function post(url: string, key: string, body: object): string {
  const headers = `-H "Authorization: Bearer ${key}" -H 'Content-Type: application/json'`;
  return `curl -s ${url} ${headers} -d '${JSON.stringify(body)}'`;
}

/** The API key that the first start created at random; undefined in every other start. */
interface FirstKey {
  value: string | undefined;
  /** Must be called when the key has been shown. */
  shown(): void;
}

/**
 * Ensures that a newly created key is shown exactly once: by the banner, or as the last line if this process
 * ends before the banner.
 */
function firstKey(value: string | undefined): FirstKey {
  const show = () => {
    process.stdout.write(`API key of the workspace default, shown this once: ${value}\n`);
  };
  if (value) process.once('exit', show);
  return { value, shown: () => process.off('exit', show) };
}
