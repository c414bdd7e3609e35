import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { median } from './figure.ts';

/** Bytes of a page of the log of Postgres. */
const PAGE = 8192;

const TIMES = 200;

/**
 * Milliseconds that the disk takes to keep a page while nothing else is written, the median of 200: what every durable
 * answer waits for at least, once in Redis and once in Postgres.
 *
 * @param folder where the servers of the bench have their files
 */
export function measureIdleFsync(folder: string): number {
  const file = path.join(folder, 'idle-fsync');
  const handle = openSync(file, 'w');
  const page = Buffer.alloc(PAGE, 1);
  try {
    const times = Array.from({ length: TIMES }, () => {
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
