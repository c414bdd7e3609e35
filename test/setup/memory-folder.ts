import { chmodSync, mkdirSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import path from 'node:path';
import { isAlive } from '../../src/platform/lifecycle.ts';
import { isLong } from './length.ts';

const MEMORY = '/dev/shm';
const NAME = 'penstock-tests-';

/**
 * Bytes that must be free in the folder and in memory: more than every database, cluster and log of a run
 * needs.
 */
const ROOM = 8 * 2 ** 30;

/**
 * Puts the temporary folders of this run, and of every process that it starts, into memory if there is room:
 * test data lives
 * for minutes, and each database is a copy of a thousand files. The long form writes too much for that.
 */
export function keepTemporaryInMemory(): void {
  if (process.env.TMPDIR || isLong || freeBytes() < ROOM) return;
  for (const name of readdirSync(MEMORY)) {
    // A folder of a run that was killed.
    const pid = name.startsWith(NAME) ? Number(name.slice(NAME.length)) : 0;
    if (pid > 0 && !isAlive(pid)) removeLeftBehind(path.join(MEMORY, name));
  }
  const folder = path.join(MEMORY, `${NAME}${process.pid}`);
  mkdirSync(folder, { recursive: true });
  // The same mode as the system's folder: Postgres runs as another user.
  chmodSync(folder, 0o1777);
  process.env.TMPDIR = folder;
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
}

/** Removes a folder if it can be removed: a file system that a killed run has mounted in it keeps it busy. */
function removeLeftBehind(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true });
  } catch {
    // Its memory stays in use until somebody unmounts it. This run does not need it.
  }
}

function freeBytes(): number {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return Math.min(bavail * bsize, process.availableMemory());
  } catch {
    return 0;
  }
}
