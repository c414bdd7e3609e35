import { readFileSync } from 'node:fs';

/**
 * Returns the processor time of the calling thread in milliseconds, which does not include waiting for other
 * processes.
 * Without /proc it returns wall-clock time.
 */
export function threadTime(): number {
  try {
    return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return performance.now();
  }
}
