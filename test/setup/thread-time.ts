import { readFileSync } from 'node:fs';

/**
 * Milliseconds of processor time that the calling thread has had: what it has worked, however long others kept it waiting.
 * Of the clock, where there is no /proc.
 */
export function threadTime(): number {
  try {
    return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return performance.now();
  }
}
