import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../log.ts';

/**
 * What a server is asked, and after how many milliseconds: to end when its clients have gone, which the
 * processes of the killed start are about to do; to end; to end at once and recover at its next start.
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

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !isZombie(pid);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** In a container without an init process, what nobody waits for stays in the table of processes. */
function isZombie(pid: number): boolean {
  try {
    return /^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
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
