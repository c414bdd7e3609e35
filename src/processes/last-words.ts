import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  type Stats,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { shortened } from '../platform/format.ts';
import { messageOf } from '../platform/log.ts';
import { isUuid } from '../profile/values.ts';

/** Maximum characters of a stored error. */
const MAX_CHARACTERS = 300;

/** Maximum bytes that are read. */
const MAX_BYTES = 4096;

/** Milliseconds after which a file is removed. The rows of ended processes are deleted after the same time. */
const OLD_MS = 3_600_000;

const fileOf = (id: string) => path.join(tmpdir(), `penstock-${id}.end`);

/** Whether a file is a regular file of the user of this process. Every user can write to the temporary folder. */
const isOwn = (stats: Stats) => stats.isFile() && stats.uid === (process.getuid?.() ?? stats.uid);

/**
 * Arranges that the error which ends this process is written to a file for the next process of its kind on this machine.
 * A killed process writes no file.
 * @param id UUID of the process
 */
export function keepLastWords(id: string): void {
  cleanUpLastWords();
  process.on('uncaughtExceptionMonitor', (error) => writeLastWords(id, error));
}

/** Writes the last error of a process. An existing file is not overwritten. */
export function writeLastWords(id: string, error: unknown): void {
  try {
    const text = shortened(messageOf(error).split('\n')[0]!, MAX_CHARACTERS);
    writeFileSync(fileOf(id), text, { mode: 0o600, flag: 'wx' });
  } catch {
    // The log of the process has the error too.
  }
}

/** Returns the error that ended a process; undefined if this machine has no file of this user with it. */
export function readLastWords(id: string): string | undefined {
  try {
    // Without O_NONBLOCK, opening a named pipe would wait for a writer.
    const file = openSync(fileOf(id), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      if (!isOwn(fstatSync(file))) return undefined;
      const buffer = Buffer.alloc(MAX_BYTES);
      return buffer.toString('utf8', 0, readSync(file, buffer));
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}

/** Removes the file of a process whose last error is stored. */
export function removeLastWords(id: string): void {
  removeOwn(fileOf(id));
}

/** Removes old files of this user, whose processes were not replaced on this machine. */
export function cleanUpLastWords(): void {
  try {
    for (const name of readdirSync(tmpdir())) {
      const [, id] = /^penstock-(.+)\.end$/.exec(name) ?? [];
      if (isUuid(id)) removeOwn(fileOf(id), Date.now() - OLD_MS);
    }
  } catch {
    // A folder that cannot be listed has no file that this process could remove.
  }
}

/** Removes a file of this user that was last written before a time in epoch milliseconds. Never throws. */
function removeOwn(file: string, before = Number.POSITIVE_INFINITY): void {
  try {
    const stats = lstatSync(file);
    if (isOwn(stats) && stats.mtimeMs < before) rmSync(file);
  } catch {
    // Another process has removed the file, or the folder does not allow it.
  }
}
