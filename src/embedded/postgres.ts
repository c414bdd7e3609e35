import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  chownSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { ConfigError } from '../platform/config.ts';
import { makeFolders } from '../platform/files.ts';
import type { Log } from '../platform/log.ts';
import { PostgresClient } from '../store/postgres-client.ts';
import {
  freePort,
  isPortTaken,
  ROLE,
  readEmbeddedUrl,
  SOCKET_PORT,
  socketFolder,
  type Transport,
  transportOf,
  urlFile,
  urlOf,
} from './address.ts';
import { chooseServerUser, lockDataDir, type ServerUser, stopLeftOver } from './data-dir.ts';
import {
  type Binaries,
  findBinaries,
  PortLost,
  type Server,
  type ServerSettings,
  startServer,
} from './server.ts';

const DATABASE = 'penstock';

/** Locale options that give the same sort order and messages on every system. */
const LOCALE = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];

export interface EmbeddedPostgres {
  url: string;
  /** Whether a server that a killed start had left running was stopped. */
  recovered: boolean;
  /** Resolves when the current server has ended for any reason. */
  readonly exited: Promise<void>;
  /**
   * Restarts a server that has ended, at the same address.
   * @param signal ends the server if it is still starting
   * @throws {Error} with the server's own message if it does not start.
   */
  startAgain(signal?: AbortSignal): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Option of `initdb` of Postgres 16 and later. The password is random, so its authentication needs no
 * iterations that slow down guesses, and each connection takes less processor time.
 */
export const SHORT_PROOF = '--set=scram_iterations=1';

export interface EmbeddedOptions {
  /** Paths of the programs; by default, the programs of the npm package. */
  binaries?: Binaries | undefined;
  /** Socket in `dataDir` by default, or a port if the path of the socket would be too long. */
  transport?: Transport;
  /** Settings of the server that differ from the defaults. */
  settings?: ServerSettings;
  /** Further options of `initdb`. */
  initdb?: string[];
}

/**
 * Starts a Postgres with its data in `dataDir`, which the first call creates. It listens on a socket in that
 * folder, which no other user can access, or on a port of the loopback address if the path of the socket
 * would be too long. The folder also contains `password`, `database-url` (for the command line) and
 * `postgres.log`.
 * @throws {ConfigError} if DATA_DIR cannot be created or written to.
 * @throws {DataDirInUse} if another process uses it.
 * @throws {Error} with the server's own message if it does not start.
 */
export async function startEmbeddedPostgres(
  dataDir: string,
  log: Log,
  { binaries, transport: wanted, settings, initdb: options = [] }: EmbeddedOptions = {},
): Promise<EmbeddedPostgres> {
  const home = path.resolve(dataDir);
  await makeHome(home);
  const unlock = await lockDataDir(home, log);
  try {
    const { initdb, postgres, locale = LOCALE } = binaries ?? (await findBinaries());
    const cluster = path.join(home, 'postgres');
    const user = chooseServerUser(cluster, postgres, home);
    const recovered = await stopLeftOver(cluster, log);
    const password = readPassword(home);
    if (!existsSync(cluster))
      await initialise({ initdb: [initdb, ...locale, ...options], cluster, password, user });

    const transport = wanted ?? transportOf(home);
    const urlAt = (port: number, database: string) => urlOf({ home, transport, port, password, database });
    const startOn = (port: number, signal?: AbortSignal): Promise<Server> => {
      const socket = transport === 'socket' ? openSocketFolder(home, user) : undefined;
      const logFile = path.join(home, 'postgres.log');
      const url = urlAt(port, 'postgres');
      return startServer(
        { program: postgres, cluster, port, socket, user, settings, url, logFile, signal },
        log,
      );
    };
    const start = async (port: number) => ({ port, server: await startOn(port) });
    const first = await (transport === 'socket' ? start(SOCKET_PORT) : onFreePort(home, start, log));
    const { port } = first;
    let { server } = first;
    try {
      await createDatabase(urlAt(port, 'postgres'));
    } catch (error) {
      await server.stop();
      throw error;
    }
    const url = urlAt(port, DATABASE);
    writeFileSync(urlFile(home), `${url}\n`, { mode: 0o600 });
    return {
      url,
      recovered,
      get exited() {
        return server.exited;
      },
      async startAgain(signal) {
        await server.exited;
        await stopLeftOver(cluster, log);
        server = await startOn(port, signal);
      },
      async stop() {
        await server.stop();
        await unlock();
      },
    };
  } catch (error) {
    await unlock();
    throw error;
  }
}

/** @throws {ConfigError} naming DATA_DIR */
async function makeHome(home: string): Promise<void> {
  try {
    await makeFolders(home);
    accessSync(home, constants.W_OK | constants.X_OK);
    if (!statSync(home).isDirectory()) throw new Error('it is a file');
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? (error as Error).message;
    throw new ConfigError(
      `DATA_DIR ${home} cannot be created or written to (${reason}); set DATA_DIR to a folder of this user, or DATABASE_URL to your own Postgres`,
    );
  }
}

/** Returns whether `dataDir` contains an embedded Postgres. */
export function hasEmbeddedPostgres(dataDir: string): boolean {
  return existsSync(path.join(dataDir, 'postgres'));
}

/** Creates a new folder on each start, so that files of a killed server do not interfere. */
function openSocketFolder(home: string, { owner }: ServerUser): string {
  const folder = socketFolder(home);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { mode: 0o700 });
  if (owner) chownSync(folder, owner.uid, owner.gid);
  return folder;
}

/** Returns the password in `home`, and creates it if it does not exist. It is created before the cluster. */
function readPassword(home: string): string {
  const file = path.join(home, 'password');
  if (!existsSync(file)) writeFileSync(file, randomBytes(24).toString('base64url'), { mode: 0o600 });
  return readFileSync(file, 'utf8');
}

interface NewCluster {
  /** Path of the program, and its locale options. */
  initdb: string[];
  /** Absolute path of the cluster. */
  cluster: string;
  password: string;
  user: ServerUser;
}

/**
 * Creates the cluster in a temporary folder and renames it, so that a killed start leaves no partial cluster.
 */
async function initialise({ initdb, cluster, password, user }: NewCluster): Promise<void> {
  const unfinished = `${cluster}.unfinished`;
  const passwordFile = `${cluster}.password`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { mode: 0o700 });
  writeFileSync(passwordFile, password, { mode: 0o600 });
  const { owner } = user;
  if (owner) for (const file of [unfinished, passwordFile]) chownSync(file, owner.uid, owner.gid);
  try {
    const [file, ...args] = [
      ...user.prefix,
      ...initdb,
      `--pgdata=${unfinished}`,
      `--username=${ROLE}`,
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      // Corrupted pages are reported instead of returned.
      '--data-checksums',
    ];
    await promisify(execFile)(file!, args, { ...user.ids, cwd: '/' });
    renameSync(unfinished, cluster);
  } catch (error) {
    const { stderr, message } = error as { stderr?: string; message: string };
    throw new Error(`the embedded Postgres could not be created: ${stderr?.trim() || message}`, {
      cause: error,
    });
  } finally {
    rmSync(passwordFile, { force: true });
  }
}

/** Maximum attempts: another program can take a port between its choice and the start of the server. */
const MAX_PORTS = 5;

async function onFreePort<T>(home: string, start: (port: number) => Promise<T>, log: Log): Promise<T> {
  for (let left = MAX_PORTS; ; left--) {
    const port = await choosePort(home);
    try {
      return await start(port);
    } catch (error) {
      if (!(error instanceof PortLost) || left === 1) throw error;
      log.warn({ port }, 'port of the embedded Postgres is in use; trying another port');
    }
  }
}

/** Returns the port of the last start if it is free, otherwise another free port. */
async function choosePort(home: string): Promise<number> {
  const url = readEmbeddedUrl(home);
  const last = url ? Number(new URL(url).port) : 0;
  return last && last !== SOCKET_PORT && !(await isPortTaken(last)) ? last : freePort();
}

async function createDatabase(url: string): Promise<void> {
  const client = new PostgresClient({ connectionString: url });
  // When the server ends, the client emits an error, which would end the process without a listener.
  client.on('error', () => {});
  await client.connect();
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE]);
    if (!rowCount) await client.query(`create database ${DATABASE}`);
  } finally {
    await client.end();
  }
}
