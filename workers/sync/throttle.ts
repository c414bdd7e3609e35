import type { TokenBuckets } from '../../src/limits/token-buckets.ts';
import { BEHIND } from '../../src/queue/lanes.ts';

import { buckets as defaults } from '../../src/schemas/limits.ts';

/** Rows that one token pays for: as many objects as a request of /users/track may have in an array. */
const ROWS_PER_TOKEN = 75;

/** Whether more waits in the lanes than the workers have in hand: what a sync process does for itself waits then. */
export const areBehind = ({ waiting, lanes }: Pick<ThrottleOptions, 'waiting' | 'lanes'>) =>
  waiting() >= BEHIND * lanes;

/** Milliseconds between two looks at lanes that are behind. */
const ASK_AGAIN_MS = 50;

/** Milliseconds of the shortest and the longest wait for tokens: a cancelled run should not wait for minutes. */
const SHORTEST = 5;
const LONGEST = 1000;

/** A bucket's size; a row of `rate_limits` or the default. */
export interface Limit {
  requests: number;
  windowSeconds: number;
}

export interface ThrottleOptions {
  buckets: TokenBuckets;
  /** Jobs that wait in all lanes. */
  waiting: () => number;
  lanes: number;
  workspaceId: string;
  /** Limit of a workspace without one of its own. */
  usual?: Limit;
}

/**
 * The throttle of one run. It goes behind what waits in the lanes, and within the workspace's rate of /users/track; half
 * a bucket of that is always left to live requests.
 */
export function createThrottle({
  buckets,
  waiting,
  lanes,
  workspaceId,
  usual = defaults['users.track'],
}: ThrottleOptions) {
  let paid = 0;
  let held = false;

  /** Milliseconds after which to ask again; 0: so many rows may be handed over now, and are paid for. */
  return async function ask(rows: number, limit: Limit = usual): Promise<number> {
    if (areBehind({ waiting, lanes })) return ASK_AGAIN_MS;
    const { requests, windowSeconds } = limit;
    const kept = Math.floor(requests / 2);
    const take = (tokens: number) => buckets.take(`${workspaceId}:users.track`, limit, tokens);
    const until = (tokens: number) =>
      Math.min(LONGEST, Math.max(SHORTEST, Math.ceil((tokens * windowSeconds * 1000) / requests)));
    while (paid < rows) {
      if (held) {
        const { left } = await take(0);
        if (left < kept) return until(kept - left);
      }
      const wanted = Math.ceil((rows - paid) / ROWS_PER_TOKEN);
      // A bite: one that empties a small bucket would leave nothing to a live request.
      const { granted, left } = await take(Math.min(wanted, Math.max(1, Math.floor(requests / 10))));
      paid += granted * ROWS_PER_TOKEN;
      held = left < kept;
      if (granted === 0) return until(1);
    }
    paid -= rows;
    return 0;
  };
}

export type Throttle = ReturnType<typeof createThrottle>;

/** Rows of a chunk; with it ends how long a live request can wait behind one. */
const LARGEST = 1000;
const SMALLEST = 50;
const FIRST = 100;

/**
 * Milliseconds that a chunk may need from its hand-over to its effect. A live request behind it waits less than that.
 * It is half of the second that a sync may cost one, since the next chunk is known to be slow only when it was.
 */
const TARGET = 500;

/** The size of chunks: as many rows as the lanes take at a time without making others wait. */
export function createChunkSize() {
  let size = FIRST;
  return {
    now: () => size,
    /** @param milliseconds that a chunk of `rows` took, its wait in the lanes included */
    learn(rows: number, milliseconds: number): void {
      if (milliseconds > TARGET) size = Math.max(SMALLEST, Math.floor(Math.min(rows, size) / 2));
      else if (milliseconds < TARGET / 2 && rows >= size) size = Math.min(LARGEST, size * 2);
    },
  };
}
