import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { median } from './figure.ts';

/** Bytes of a page of the write-ahead log of Postgres. */
const PAGE = 8192;

const REPETITIONS = 200;

/**
 * Measures the milliseconds for writing a page to an otherwise idle disk, as the median of 200. Every durable
 * response waits for it at least once in Redis and once in Postgres.
 *
 * @param folder folder of the servers' files
 */
export function measureIdleFsync(folder: string): number {
  const file = path.join(folder, 'idle-fsync');
  const handle = openSync(file, 'w');
  const page = Buffer.alloc(PAGE, 1);
  try {
    const times = Array.from({ length: REPETITIONS }, () => {
      const started = performance.now();
      writeSync(handle, page, 0, PAGE, 0);
      fdatasyncSync(handle);
      return performance.now() - started;
    });
    return median(times);
  } finally {
    closeSync(handle);
    rmSync(file);
  }
}
