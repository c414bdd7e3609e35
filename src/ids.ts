import { randomFillSync } from 'node:crypto';
import { v7 } from 'uuid';

/** Random bytes are fetched for a thousand ids at a time: each fetch is a system call. */
const pool = new Uint8Array(16 * 1024);
let used = pool.length;

let last = 0;
let seq = 0;

/** A new UUIDv7. Those of one process are in the order in which they were made, also within a millisecond. */
export function newId(): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const random = pool.subarray(used, used + 16);
  used += 16;
  // A clock that is set back must not turn the order round.
  const msecs = Math.max(Date.now(), last);
  seq = msecs === last ? seq + 1 : 0;
  last = msecs;
  return v7({ random, msecs, seq });
}
