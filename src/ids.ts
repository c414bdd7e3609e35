import { randomFillSync } from 'node:crypto';
import { v7 } from 'uuid';

/** Random bytes are fetched for a thousand ids at a time: each fetch is a system call. */
const pool = new Uint8Array(16 * 1024);
let used = pool.length;

/** A new UUIDv7. Those of one millisecond have no order among themselves. */
export function newId(): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const random = pool.subarray(used, used + 16);
  used += 16;
  return v7({ random });
}
