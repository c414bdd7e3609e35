import type { ChainableCommander } from 'ioredis';
import { rest } from '../platform/poll.ts';
import type { Redis } from './ioredis.ts';
import { markOf } from './lanes.ts';
import { type Exec, isCluster, type RedisClient, serverOf } from './open-redis.ts';

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
  function noteDisks([error, counts]: [Error | null, unknown]): void {
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

  async function execAndWait(multi: ChainableCommander, send: Exec): ReturnType<Exec> {
    // The first call of a transaction puts EXEC into the pipeline, the second one sends the whole pipeline.
    void send.call(multi);
    multi.call('WAIT', replicas, Math.ceil(timeout * SHARE_OF_TIMEOUT));
    const disks = timeForDisks();
    if (disks !== undefined) multi.call('WAITAOF', 0, replicas, disks);
    const answers = (await send.call(multi)) ?? [];
    const ofDisks = disks === undefined ? undefined : answers.pop();
    const [error, results] = answers.at(-2) ?? [new Error('no answer')];
    if (error) throw answers.find(([one]) => one && !/^EXECABORT/.test(one.message))?.[0] ?? error;
    const [unwaited, held] = answers.at(-1) ?? [];
    isBehind = Boolean(unwaited) || Number(held) < replicas;
    if (unwaited) throw unwaited;
    if (isBehind) throw new TooFewReplicas(Number(held), replicas);
    if (ofDisks) noteDisks(ofDisks);
    return (
      (results as unknown[] | null)?.map((one) => (one instanceof Error ? [one, undefined] : [null, one])) ??
      null
    );
  }

  return {
    /** @returns a function that sends a transaction and waits for replicas */
    replicated(multi: ChainableCommander): Exec {
      const send: Exec = Object.getPrototypeOf(multi).exec;
      let isAgain = false;
      // After a lost connection, ioredis calls this function again to send the pipeline unchanged.
      return () => {
        if (isAgain) return send.call(multi);
        isAgain = true;
        return execAndWait(multi, send);
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
