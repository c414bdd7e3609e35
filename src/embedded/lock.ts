import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';

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
  const end = Date.now() + PATIENCE_MS;
  let told = false;
  for (;;) {
    const server = await listen(file);
    if (server) {
      server.unref();
      return () => new Promise((resolve) => server.close(() => resolve()));
    }
    const owner = await askOwner(file);
    if (!owner) {
      rmSync(file, { force: true });
      continue;
    }
    if (Date.now() > end)
      throw new DataDirInUse(`another npm start (process ${owner}) is running on ${dataDir}, its DATA_DIR`);
    if (!told) log.warn(`waiting for the end of another npm start (process ${owner}) on ${dataDir}`);
    told = true;
    await sleep(POLL_MS);
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
  log.warn({ pid }, 'stopping the embedded Postgres of a start that was killed');
  const begin = Date.now();
  const left = [...requests];
  while (isAlive(pid)) {
    const [after, signal] = left[0] ?? [Number.POSITIVE_INFINITY, 'SIGQUIT'];
    if (Date.now() - begin >= after) {
      left.shift();
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended since.
      }
    }
    await sleep(25);
  }
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
