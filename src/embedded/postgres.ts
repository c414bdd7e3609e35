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
import { PostgresClient } from '../store/database.ts';
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

/** The same order and the same messages on every system, whatever locales it has. */
const LOCALE = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];

export interface EmbeddedPostgres {
  url: string;
  /** A server of an earlier start, whose owner was killed, was still running and has been stopped. */
  recovered: boolean;
  /** Resolves when the server that was started last has ended, whether asked or not. */
  readonly exited: Promise<void>;
  /**
   * Starts a server that has ended once more, at the same address.
   * @param signal ends it again while it is still starting
   * @throws {Error} with the server's own words when it does not start.
   */
  startAgain(signal?: AbortSignal): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Option of `initdb` of Postgres 16 and later. The password is random, so its proof needs no iterations that slow down guesses,
 * and each connection takes less processor time.
 */
export const SHORT_PROOF = '--set=scram_iterations=1';

export interface EmbeddedOptions {
  /** Paths of the programs; those from npm unless told. */
  binaries?: Binaries | undefined;
  /** A socket in `dataDir` unless told, or its path is too long for one. */
  transport?: Transport;
  /** Settings of the server that differ from the usual ones. */
  settings?: ServerSettings;
  /** Further options of `initdb`. */
  initdb?: string[];
}

/**
 * Starts a Postgres whose data lives in `dataDir`, made on the first call. It listens on a socket in that folder, which
 * is closed to everyone else; on a port of loopback only where the path of a socket would be too long.
 * Beside the cluster lie `password`, `database-url` (for the admin command) and `postgres.log`.
 * @throws {ConfigError} when DATA_DIR cannot be made, or written to.
 * @throws {DataDirInUse} when another process runs it.
 * @throws {Error} with the server's own words when it does not start.
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

/** Whether a start has made one in `dataDir`. */
export function hasEmbeddedPostgres(dataDir: string): boolean {
  return existsSync(path.join(dataDir, 'postgres'));
}

/** A new one on each start: what a server that was killed has left in it is in nobody's way. */
function openSocketFolder(home: string, { owner }: ServerUser): string {
  const folder = socketFolder(home);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { mode: 0o700 });
  if (owner) chownSync(folder, owner.uid, owner.gid);
  return folder;
}

/** The password in `home`, made when there is none: it exists before the cluster that it is for. */
function readPassword(home: string): string {
  const file = path.join(home, 'password');
  if (!existsSync(file)) writeFileSync(file, randomBytes(24).toString('base64url'), { mode: 0o600 });
  return readFileSync(file, 'utf8');
}

interface NewCluster {
  /** The program, and what it is told about locales. */
  initdb: string[];
  /** The cluster's folder, absolute. */
  cluster: string;
  password: string;
  user: ServerUser;
}

/** Makes the cluster beside its place and moves it there, so that a start killed in between leaves no half of one. */
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
      // A page that the disk has changed is reported instead of served.
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

/** Between the choice of a port and the server's own listening, another program can take it. */
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

/** The port of the last start, while it is free. */
async function choosePort(home: string): Promise<number> {
  const url = readEmbeddedUrl(home);
  const last = url ? Number(new URL(url).port) : 0;
  return last && last !== SOCKET_PORT && !(await isPortTaken(last)) ? last : freePort();
}

async function createDatabase(url: string): Promise<void> {
  const client = new PostgresClient({ connectionString: url });
  // A server that ends reports it here as well; without a listener that would end the process.
  client.on('error', () => {});
  await client.connect();
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE]);
    if (!rowCount) await client.query(`create database ${DATABASE}`);
  } finally {
    await client.end();
  }
}
