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

/** A Unix socket's path may have 103 bytes on macOS and 107 on Linux. */
const MAX_SOCKET_PATH = 100;

/** How long to wait for an owner that may be about to end: longer than an orderly stop takes. */
const PATIENCE_MS = 8000;
const POLL_MS = 100;

/** Digits of a process id, and more: who says more is no start of ours. */
const MAX_ANSWER = 20;

/** Another process holds the data directory. */
export class DataDirInUse extends Error {}

/**
 * Takes the data directory for this process, until it ends or calls the returned function. The lock is a listening
 * socket, not a file with a process id. The kernel closes it however its owner dies, and an id that has gone to another
 * program is never mistaken for the owner.
 * @throws {DataDirInUse} naming the process that holds it.
 */
export async function lockDataDir(dataDir: string, log: Log): Promise<() => Promise<void>> {
  const file = socketPath(dataDir);
  let told = false;
  const got = await until(() => listenOrAsk(file), {
    every: POLL_MS,
    deadline: Date.now() + PATIENCE_MS,
    isSo: (found) => typeof found !== 'string',
    inVain(owner) {
      if (!told) log.warn(`waiting for another ${START_COMMAND} (process ${owner}) on ${dataDir} to stop`);
      told = true;
    },
  });
  if (typeof got === 'string')
    throw new DataDirInUse(
      `another ${START_COMMAND} (process ${got}) is running on ${dataDir}; stop it, or set DATA_DIR to another folder`,
    );
  got.unref();
  return () => new Promise((resolve) => got.close(() => resolve()));
}

/** The socket, or the process id of who listens there. What a dead owner has left is taken out of the way. */
async function listenOrAsk(file: string): Promise<Server | string> {
  for (;;) {
    const got = (await listen(file)) ?? (await askOwner(file));
    if (got) return got;
    rmSync(file, { force: true });
  }
}

function socketPath(dataDir: string): string {
  const inside = path.relative(process.cwd(), path.join(dataDir, 'lock.sock'));
  if (Buffer.byteLength(inside) <= MAX_SOCKET_PATH) return inside;
  const name = createHash('sha256').update(path.resolve(dataDir)).digest('hex').slice(0, 16);
  return path.join(tmpdir(), `penstock-${name}.sock`);
}

/** Listens and tells everyone who connects the id of this process; undefined when the path is taken. */
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

/** The process id of a living owner; undefined when nobody listens any more. */
function askOwner(file: string): Promise<string | undefined> {
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
 * What a server is asked, and after how many milliseconds. First to end when its clients have gone, which the processes
 * of the killed start are about to do. Then to end; then to end at once and recover at its next start.
 */
const requests: [number, NodeJS.Signals][] = [
  [0, 'SIGTERM'],
  [3000, 'SIGINT'],
  [20_000, 'SIGQUIT'],
];

/**
 * Stops the server that a killed start has left running on `cluster`. Only for who holds the lock of the
 * data directory: no living start owns that server. A process id that now belongs to another program is
 * taken out of the way, since Postgres itself would refuse to start on account of it.
 * @returns whether there was a server.
 */
export async function stopLeftOver(cluster: string, log: Log): Promise<boolean> {
  const pidFile = path.join(cluster, 'postmaster.pid');
  const pid = readPid(pidFile);
  if (!pid || !isAlive(pid)) return false;
  // With what stands around it: a copy of the folder may lie where its path is a part of another's.
  if (!commandLine(pid).includes(` ${cluster} `)) {
    rmSync(pidFile, { force: true });
    return false;
  }
  log.warn({ pid }, 'stopping the embedded Postgres of an npm start that was killed');
  const begin = Date.now();
  const left = [...requests];
  await until(() => !isAlive(pid), {
    every: 25,
    inVain() {
      const [after, signal] = left[0] ?? [Number.POSITIVE_INFINITY, 'SIGQUIT'];
      if (Date.now() - begin < after) return;
      left.shift();
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended since.
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
    // Not Linux.
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

/** How to start a program of Postgres, which refuses to run as root. */
export interface ServerUser {
  /** Who must own the cluster; absent: whoever runs this process. */
  owner?: Ids;
  /** To give to `spawn`; empty where nothing changes or `prefix` does it. */
  ids: Ids | Record<string, never>;
  /** Put before the command line. */
  prefix: string[];
}

/**
 * As a normal user: that user. As root: whoever owns the cluster, else the system's user `postgres`, else
 * `nobody`; no user is created. Root's own folders (/root, a `mktemp -d`) are closed to them: there
 * the program keeps one privilege of root's, to pass through folders, by way of `setpriv`.
 * @param cluster the folder of the cluster, which need not exist; `program` and `home` are what the user must reach.
 * @throws {Error} saying what to do when the user cannot reach them.
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
    // Without it access(2), by which Postgres looks for its own files, would not honour the privilege.
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
  const found = statSync(folder, { throwIfNoEntry: false });
  return found && found.uid !== 0 ? { uid: found.uid, gid: found.gid } : undefined;
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
