import type { ChainableCommander } from 'ioredis';
import { rest } from '../platform/poll.ts';
import type { Redis } from './ioredis.ts';
import { markOf } from './lanes.ts';
import { isCluster, type RedisClient, serverOf } from './open-redis.ts';

/** Replication that an acknowledgement waits for, in addition to the disk of the primary. */
export interface Replication {
  /** Number of replicas that must hold what was added. */
  replicas: number;
  /** Opens a client for the producer alone, because a waiting command blocks all others on its connection. */
  open(): RedisClient;
}

/** The primary stored the add, but too few replicas confirmed it. It may be lost with its primary. */
class TooFewReplicas extends Error {
  override name = 'TooFewReplicas';
  constructor(count: number, wanted: number, where: 'memory' | 'disk' = 'memory') {
    super(
      `${count} of ${wanted} replicas hold the last added jobs${where === 'disk' ? ' on their disks' : ''}`,
    );
  }
}

/** Part of the timeout of an add that is reserved for the replicas; the rest is for the add itself. */
const SHARE_OF_TIMEOUT = 0.5;

/** Milliseconds for which the producer waits for replicas that lag, before it refuses the next add. */
const PROBE_MS = 50;

/** Milliseconds between two queries for disk confirmations while replicas do not give any. */
const ASK_DISKS_MS = 10_000;

/** Adds in a row without enough disk confirmations after which disks are no longer required for a while. */
const MAX_MISSED = 3;

/** The answer to one command of a pipeline. */
type Answer = [error: Error | null, result?: unknown];

export type ReplicaWait = ReturnType<typeof waitForReplicas>;

/**
 * Delays the answer to an add until enough replicas hold it. `WAIT` follows `EXEC` in the same pipeline, because it
 * covers the writes of its own connection and does not wait inside a transaction.
 *
 * `WAIT` counts replicas that hold the add in memory, and `WAITAOF` (Redis 7.2, Valkey) counts replicas that have it on
 * disk. Replicas without an append-only file, or with `appendfsync everysec`, do not confirm the disk in time under
 * load. Adds therefore require disk confirmations only after one add has received enough of them at once. If three adds
 * in a row then receive too few, these three fail, and later adds require only memory until disks confirm again.
 *
 * @param redis a client that only this producer writes to
 * @param timeout milliseconds for a whole add
 */
export function waitForReplicas(
  redis: RedisClient,
  { replicas, timeout, shard }: { replicas: number; timeout: number; shard: number },
) {
  let isBehind = false;
  /** Whether the server has `WAITAOF`; undefined until it was asked. */
  let hasWaitAof: boolean | undefined;
  let disksCount = false;
  let checkedAt = Number.NEGATIVE_INFINITY;
  let missed = 0;

  /** Returns the timeout in milliseconds of the `WAITAOF` after the next add; undefined if no `WAITAOF` is sent. */
  function timeForDisks(): number | undefined {
    if (!hasWaitAof) return undefined;
    if (disksCount) return Math.ceil(timeout * SHARE_OF_TIMEOUT);
    return performance.now() - checkedAt < ASK_DISKS_MS ? undefined : PROBE_MS;
  }

  /** @param answer to `WAITAOF`: the number of servers and of replicas with the add on disk */
  function noteDisks([error, counts]: Answer): void {
    // After a failover the new primary may run an older version.
    if (error) {
      hasWaitAof = /unknown command/i.test(error.message) ? false : hasWaitAof;
      disksCount &&= hasWaitAof === true;
      if (disksCount) isBehind = true;
      if (disksCount) throw error;
      return;
    }
    judgeDisks(Number((counts as unknown[])[1]));
  }

  /**
   * @param held number of replicas that have the last add on disk
   * @throws {TooFewReplicas} if disks are required and too few have it
   */
  function judgeDisks(held: number): void {
    checkedAt = performance.now();
    if (held >= replicas) {
      disksCount = true;
      missed = 0;
    } else if (disksCount) {
      missed++;
      disksCount = missed < MAX_MISSED;
      isBehind = disksCount;
      throw new TooFewReplicas(held, replicas, 'disk');
    }
  }

  return {
    /**
     * Appends the commands that wait for replicas to a pipeline, after the EXEC of its transaction.
     * @returns a function that checks the answers to these commands
     */
    appendTo(pipeline: ChainableCommander): (answers: Answer[]) => void {
      pipeline.call('WAIT', replicas, Math.ceil(timeout * SHARE_OF_TIMEOUT));
      const disks = timeForDisks();
      if (disks !== undefined) pipeline.call('WAITAOF', 0, replicas, disks);
      return ([wait, ofDisks]) => {
        const [error, held] = wait ?? [new Error('no answer')];
        isBehind = Boolean(error) || !(Number(held) >= replicas);
        if (error) throw error;
        if (isBehind) throw new TooFewReplicas(Number(held) || 0, replicas);
        if (ofDisks) noteDisks(ofDisks);
      };
    },

    /**
     * Refuses to add after an add that too few replicas confirmed, until they have caught up. Clients repeat a
     * request after a 503, and each attempt would store the same objects again.
     * @throws {TooFewReplicas}
     */
    async caughtUp(): Promise<void> {
      const server = serverOf(redis, markOf(shard));
      hasWaitAof ??= server && (await knowsWaitAof(server));
      if (!isBehind) return;
      const held = Number(await server?.call('WAIT', replicas, PROBE_MS));
      if (!(held >= replicas)) throw new TooFewReplicas(held || 0, replicas);
      if (disksCount) {
        const [, disks] = (await server!.call('WAITAOF', 0, replicas, PROBE_MS)) as number[];
        judgeDisks(Number(disks) || 0);
      }
      isBehind = false;
    },
  };
}

/**
 * Returns undefined while the server does not answer. If the user may not run the query, the command counts as
 * missing.
 */
async function knowsWaitAof(server: Redis): Promise<boolean | undefined> {
  try {
    const [commandInfo] = (await server.call('COMMAND', 'INFO', 'WAITAOF')) as unknown[];
    return Array.isArray(commandInfo);
  } catch (error) {
    return /NOPERM|unknown command/i.test((error as Error).message) ? false : undefined;
  }
}

/** Whether a server reports that another server has the slot, or will have it. The add was not stored. */
const isElsewhere = (error: unknown): boolean =>
  /^(MOVED|ASK|TRYAGAIN)\b/.test((error as Error | undefined)?.message ?? '');

/** Refreshes the slot map, because ioredis does not redirect a pipeline that contains WAIT. */
function refreshSlots(redis: RedisClient): Promise<void> {
  return isCluster(redis)
    ? new Promise((resolve) => redis.refreshSlotsCache(() => resolve()))
    : Promise.resolve();
}

/** Milliseconds before an add is retried whose lanes are moving or have moved to another server. */
const ELSEWHERE_MS = 20;

/**
 * Retries an add until it reaches the server that has the lanes now. Entries added twice under the same ids are
 * stored once.
 * @param timeout milliseconds after which the error of the last attempt is thrown
 */
export async function addWhereTheLanesAre(
  redis: RedisClient,
  addAll: () => Promise<unknown>,
  timeout: number,
): Promise<void> {
  for (const deadline = performance.now() + timeout; ; ) {
    try {
      return void (await addAll());
    } catch (error) {
      if (!isElsewhere(error) || performance.now() > deadline) throw error;
      await rest(ELSEWHERE_MS);
      await refreshSlots(redis);
    }
  }
}
