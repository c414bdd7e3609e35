import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { START_COMMAND } from '../platform/files.ts';
import { isAlive } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { until } from '../platform/poll.ts';

/** Maximum bytes of the path of a Unix socket: 103 on macOS and 107 on Linux. */
const MAX_SOCKET_PATH = 100;

/** Milliseconds to wait for an owner that may be about to end, which is longer than an orderly stop takes. */
const OWNER_WAIT_MS = 8000;
const POLL_MS = 100;

/** Maximum characters of a process id. A program that sends more is not `npm start`. */
const MAX_ANSWER = 20;

/** Thrown if another process uses the data directory. */
export class DataDirInUse extends Error {}

/**
 * Locks the data directory for this process until it ends or calls the returned function. The lock is a
 * listening socket, not a file with a process id: the kernel closes the socket however its owner ends, and a
 * process id that was reused by another program cannot be mistaken for the owner.
 * @throws {DataDirInUse} naming the process that holds the lock.
 */
export async function lockDataDir(dataDir: string, log: Log): Promise<() => Promise<void>> {
  const file = socketPath(dataDir);
  let isLogged = false;
  const result = await until(() => listenOrFindOwner(file), {
    every: POLL_MS,
    deadline: Date.now() + OWNER_WAIT_MS,
    isSo: (outcome) => typeof outcome !== 'string',
    inVain(owner) {
      if (!isLogged)
        log.warn(`waiting for another ${START_COMMAND} (process ${owner}) on ${dataDir} to stop`);
      isLogged = true;
    },
  });
  if (typeof result === 'string')
    throw new DataDirInUse(
      `another ${START_COMMAND} (process ${result}) is running on ${dataDir}; stop it, or set DATA_DIR to another folder`,
    );
  result.unref();
  return () => new Promise((resolve) => result.close(() => resolve()));
}

/**
 * Returns the socket, or the process id of the program that listens there. The socket file of an owner that
 * has ended is removed.
 */
async function listenOrFindOwner(file: string): Promise<Server | string> {
  for (;;) {
    const result = (await listen(file)) ?? (await findOwner(file));
    if (result) return result;
    rmSync(file, { force: true });
  }
}

function socketPath(dataDir: string): string {
  const inside = path.relative(process.cwd(), path.join(dataDir, 'lock.sock'));
  if (Buffer.byteLength(inside) <= MAX_SOCKET_PATH) return inside;
  const name = createHash('sha256').update(path.resolve(dataDir)).digest('hex').slice(0, 16);
  return path.join(tmpdir(), `penstock-${name}.sock`);
}

/** Listens and sends the id of this process to every client; returns undefined if the path is in use. */
function listen(file: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end(String(process.pid));
    });
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined);
      else reject(error);
    });
    server.listen(file, () => resolve(server));
  });
}

/** Returns the process id of a running owner; undefined if no process listens on the socket any longer. */
function findOwner(file: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(file);
    let answer = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk) => {
      answer += chunk;
      if (answer.length > MAX_ANSWER) giveUp();
    });
    const giveUp = () => {
      resolve('(not answering)');
      socket.destroy();
    };
    socket.setTimeout(2000, giveUp);
    socket.on('error', () => resolve(undefined));
    socket.on('end', () => resolve(answer || undefined));
  });
}

/**
 * Signals for the server, each with the milliseconds after which it is sent. The first asks it to end when
 * its clients have disconnected, which the processes of the killed start are about to do. The second asks it
 * to disconnect them. The third ends it immediately; it then recovers at its next start.
 */
const stopSignals: [number, NodeJS.Signals][] = [
  [0, 'SIGTERM'],
  [3000, 'SIGINT'],
  [20_000, 'SIGQUIT'],
];

/**
 * Stops the server that a killed start has left running on `cluster`. The caller must hold the lock of the
 * data directory, so that no running start owns the server. A pid file whose process id now belongs to
 * another program is removed, because Postgres would refuse to start on account of it.
 * @returns whether a server was running.
 */
export async function stopLeftOver(cluster: string, log: Log): Promise<boolean> {
  const pidFile = path.join(cluster, 'postmaster.pid');
  const pid = readPid(pidFile);
  if (!pid || !isAlive(pid)) return false;
  // Compare with the surrounding spaces: a copy of the folder may have a path that contains the path of this
  // one.
  if (!commandLine(pid).includes(` ${cluster} `)) {
    rmSync(pidFile, { force: true });
    return false;
  }
  log.warn({ pid }, 'stopping the embedded Postgres of an npm start that was killed');
  const begin = Date.now();
  const left = [...stopSignals];
  await until(() => !isAlive(pid), {
    every: 25,
    inVain() {
      const [after, signal] = left[0] ?? [Number.POSITIVE_INFINITY, 'SIGQUIT'];
      if (Date.now() - begin < after) return;
      left.shift();
      try {
        process.kill(pid, signal);
      } catch {
        // The server has ended since.
      }
    },
  });
  return true;
}

function readPid(pidFile: string): number | undefined {
  try {
    return Number(readFileSync(pidFile, 'utf8').split('\n', 1)[0]) || undefined;
  } catch {
    return undefined;
  }
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    // /proc exists on Linux only.
  }
  try {
    return execFileSync('ps', ['-ww', '-o', 'command=', '-p', String(pid)], { encoding: 'utf8' });
  } catch {
    return '';
  }
}

interface Ids {
  uid: number;
  gid: number;
}

/** Defines the user of Postgres programs, which refuse to run as root. */
export interface ServerUser {
  /** User who must own the cluster; absent means the user of this process. */
  owner?: Ids;
  /** Options for `spawn`; empty if the user does not change or `prefix` changes it. */
  ids: Ids | Record<string, never>;
  /** Command and arguments that precede the command line. */
  prefix: string[];
}

/**
 * Chooses the user of the server. If this process does not run as root, it is the same user. For root it is
 * the owner of the cluster, otherwise the system's user `postgres`, otherwise `nobody`; no user is created.
 * These users cannot access root's own folders (/root, a `mktemp -d`). The program then runs through
 * `setpriv` and keeps one privilege of root: to pass through folders.
 * @param cluster the folder of the cluster, which need not exist; `program` and `home` must be accessible for
 * the user.
 * @throws {Error} with the fix if the user cannot access them.
 */
export function chooseServerUser(cluster: string, program: string, home: string): ServerUser {
  if (process.getuid?.() !== 0) return { ids: {}, prefix: [] };
  const owner = ownerOf(cluster) ?? idsOf('postgres') ?? idsOf('nobody');
  if (!owner)
    throw new Error('Postgres does not run as root, and the users postgres and nobody do not exist');

  const command = ['/bin/sh', '-c', 'test -x "$0" && cd "$1"', program, home];
  if (succeeds(command, owner)) return { owner, ids: owner, prefix: [] };
  const prefix = [
    'setpriv',
    `--reuid=${owner.uid}`,
    `--regid=${owner.gid}`,
    '--clear-groups',
    '--inh-caps=+dac_override',
    '--ambient-caps=+dac_override',
    // Postgres checks its own files with access(2), which would ignore the privilege without this option.
    '--securebits=+no_setuid_fixup',
  ];
  if (succeeds([...prefix, ...command])) return { owner, ids: {}, prefix };
  throw new Error(
    `Postgres does not run as root, and user ${owner.uid} cannot reach ${program} and ${home}: ` +
      `move them to a folder that others may pass through, or run ${START_COMMAND} as another user`,
  );
}

function succeeds(command: string[], ids: object = {}): boolean {
  const [file, ...args] = command;
  return spawnSync(file!, args, { ...ids, cwd: '/', stdio: 'ignore' }).status === 0;
}

function ownerOf(folder: string): Ids | undefined {
  const stats = statSync(folder, { throwIfNoEntry: false });
  return stats && stats.uid !== 0 ? { uid: stats.uid, gid: stats.gid } : undefined;
}

function idsOf(user: string): Ids | undefined {
  try {
    const id = (flag: string) =>
      Number(execFileSync('id', [flag, user], { encoding: 'utf8', stdio: 'pipe' }));
    return { uid: id('-u'), gid: id('-g') };
  } catch {
    return undefined;
  }
}
