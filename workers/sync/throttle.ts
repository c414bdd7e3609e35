import type { TokenBuckets } from '../../src/limits/token-buckets.ts';
import { BEHIND } from '../../src/queue/lanes.ts';

import { buckets as defaults } from '../../src/schemas/limits.ts';

/** Rows per token: the maximum objects in an array of a /users/track request. */
const ROWS_PER_TOKEN = 75;

/**
 * Returns whether more jobs wait in the lanes than the workers are processing. Background work of a sync
 * process waits then.
 */
export const areBehind = ({ waiting, lanes }: Pick<ThrottleOptions, 'waiting' | 'lanes'>) =>
  waiting() >= BEHIND * lanes;

/** Milliseconds between two checks while workers have a backlog. */
const BACKLOG_CHECK_MS = 50;

/**
 * Minimum and maximum milliseconds of a wait for tokens. The maximum is short so that a cancelled run ends
 * soon.
 */
const MIN_WAIT_MS = 5;
const MAX_WAIT_MS = 1000;

/** Size of a token bucket: a row of `rate_limits` or the default. */
export interface Limit {
  requests: number;
  windowSeconds: number;
}

interface ThrottleOptions {
  buckets: TokenBuckets;
  /** Returns the number of jobs that wait in all lanes. */
  waiting: () => number;
  lanes: number;
  workspaceId: string;
  /** Limit of a workspace without its own limit. */
  usual?: Limit;
}

/**
 * Creates the throttle of a run. Rows wait for the backlog of the lanes and for the workspace's rate limit of
 * /users/track, half of whose bucket is always left to live requests.
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

  /**
   * Returns the milliseconds after which to ask again. 0 means that the rows may be added now and are paid
   * for.
   */
  return async function throttle(rows: number, limit: Limit = usual): Promise<number> {
    if (areBehind({ waiting, lanes })) return BACKLOG_CHECK_MS;
    const { requests, windowSeconds } = limit;
    const kept = Math.floor(requests / 2);
    const take = (tokens: number) => buckets.take(`${workspaceId}:users.track`, limit, tokens);
    const until = (tokens: number) =>
      Math.min(MAX_WAIT_MS, Math.max(MIN_WAIT_MS, Math.ceil((tokens * windowSeconds * 1000) / requests)));
    while (paid < rows) {
      if (held) {
        const { left } = await take(0);
        if (left < kept) return until(kept - left);
      }
      const wanted = Math.ceil((rows - paid) / ROWS_PER_TOKEN);
      // Take a fraction of the bucket at a time: emptying a small bucket would leave no token to a live
      // request.
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

/** Rows of a chunk: maximum, minimum and initial. A chunk delays a live request that follows it. */
const MAX_ROWS = 1000;
const MIN_ROWS = 50;
const FIRST_ROWS = 100;

/**
 * Target milliseconds of a chunk from being added to its effect, which is the maximum wait of a live request
 * that follows it. It is half of the second that a sync may delay a request, because a chunk is only known to
 * be slow after it was slow.
 */
const TARGET_MS = 500;

/** Adapts the number of rows in a chunk to the speed of the lanes. */
export function createChunkSize() {
  let size = FIRST_ROWS;
  return {
    now: () => size,
    /** @param milliseconds duration of a chunk with `rows` rows, including its wait in the lanes */
    learn(rows: number, milliseconds: number): void {
      if (milliseconds > TARGET_MS) size = Math.max(MIN_ROWS, Math.floor(Math.min(rows, size) / 2));
      else if (milliseconds < TARGET_MS / 2 && rows >= size) size = Math.min(MAX_ROWS, size * 2);
    },
  };
}
