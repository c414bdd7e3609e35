import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { shortened } from '../platform/format.ts';
import { messageOf } from '../platform/log.ts';

/** Characters of an error that are kept. */
const MOST = 300;

const fileOf = (id: string) => path.join(tmpdir(), `penstock-${id}.end`);

/**
 * Keeps the error that ends this process in a file, where the next process of its kind on this machine finds it. A
 * process that is killed leaves none.
 * @param id of the process, a UUID
 */
export function keepLastWords(id: string): void {
  process.on('uncaughtExceptionMonitor', (error) => {
    try {
      writeFileSync(fileOf(id), shortened(messageOf(error).split('\n')[0]!, MOST), { mode: 0o600 });
    } catch {
      // Its log has the error as well.
    }
  });
}

/** Returns the error that ended a process, and removes its file; undefined: it left none on this machine. */
export function readLastWords(id: string): string | undefined {
  try {
    const text = readFileSync(fileOf(id), 'utf8');
    rmSync(fileOf(id), { force: true });
    return text;
  } catch {
    return undefined;
  }
}
