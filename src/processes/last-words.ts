import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { shortened } from '../platform/format.ts';
import { messageOf } from '../platform/log.ts';

/** Maximum characters of a stored error. */
const MOST = 300;

const fileOf = (id: string) => path.join(tmpdir(), `penstock-${id}.end`);

/**
 * Writes the error that ends this process to a file, which the next process of its kind on this machine reads. A killed
 * process writes no file.
 * @param id UUID of the process
 */
export function keepLastWords(id: string): void {
  process.on('uncaughtExceptionMonitor', (error) => {
    try {
      writeFileSync(fileOf(id), shortened(messageOf(error).split('\n')[0]!, MOST), { mode: 0o600 });
    } catch {
      // The log of the process has the error too.
    }
  });
}

/** Returns the error that ended a process; undefined if this machine has no such file. */
export function readLastWords(id: string): string | undefined {
  try {
    return readFileSync(fileOf(id), 'utf8');
  } catch {
    return undefined;
  }
}

/** Removes the file of a process whose last error is stored. */
export function removeLastWords(id: string): void {
  rmSync(fileOf(id), { force: true });
}
