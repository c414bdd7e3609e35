import type { ChainableCommander } from 'ioredis';
import { rest } from '../platform/poll.ts';
import type { Redis } from './ioredis.ts';
import { markOf } from './lanes.ts';
import { type Exec, isCluster, type RedisClient, serverOf } from './open-redis.ts';

/** What an acknowledgement waits for beside the disk of the primary. */
export interface Replication {
  /** Replicas that have to hold what was added. */
  replicas: number;
  /** A client of the producer's own: whoever waits keeps all others of a connection waiting. */
  open(): RedisClient;
}

/** What was added may be lost with its primary: it is stored there, and too few replicas have said that they hold it. */
export class TooFewReplicas extends Error {
  override name = 'TooFewReplicas';
  constructor(found: number, wanted: number, where: 'memory' | 'disk' = 'memory') {
    super(
      `${found} of ${wanted} replicas hold the last added jobs${where === 'disk' ? ' on their disks' : ''}`,
    );
  }
}

/** Part of the time of an add that replicas have; the rest is for the add itself. */
const SHARE_OF_TIMEOUT = 0.5;

/** Milliseconds for replicas to catch up before anything is added again. */
const PROBE_MS = 50;

/** Milliseconds between two questions whether replicas confirm their disks, while they do not. */
const ASK_DISKS_MS = 10_000;

/** Adds in a row without the confirmation of enough disks after which disks do not count for a while. */
const MAX_MISSED = 3;

/**
 * Lets adds be answered only once so many replicas hold them. `WAIT` goes behind `EXEC` in the same pipeline: it asks
 * for what its own connection wrote, and does not wait inside of a transaction.
 *
 * `WAIT` counts memory, and `WAITAOF` (Redis 7.2, Valkey) counts disks. Replicas without an append-only file, or with
 * `appendfsync everysec`, do not confirm in time under load. So disks count from an add that enough of them confirm at once, until
 * three adds in a row are confirmed by memory alone: those fail, and later ones are not refused for disks that cannot keep up.
 *
 * @param redis which nobody else writes to
 * @param timeout milliseconds of a whole add
 */
export function waitForReplicas(
  redis: RedisClient,
  { replicas, timeout, shard }: { replicas: number; timeout: number; shard: number },
) {
  let isBehind = false;
  /** Undefined: the server was not asked yet whether it has the command. */
  let hasWaitAof: boolean | undefined;
  let disksCount = false;
  let askedAt = Number.NEGATIVE_INFINITY;
  let missed = 0;

  /** Milliseconds for `WAITAOF` behind the next add; undefined: it is not sent. */
  function timeForDisks(): number | undefined {
    if (!hasWaitAof) return undefined;
    if (disksCount) return Math.ceil(timeout * SHARE_OF_TIMEOUT);
    return performance.now() - askedAt < ASK_DISKS_MS ? undefined : PROBE_MS;
  }

  /** @param answer of `WAITAOF`: servers and replicas, by their disks */
  function noteDisks([error, counts]: [Error | null, unknown]): void {
    // After a failover the new primary may be older.
    if (error) {
      hasWaitAof = /unknown command/i.test(error.message) ? false : hasWaitAof;
      disksCount &&= hasWaitAof === true;
      if (disksCount) isBehind = true;
      if (disksCount) throw error;
      return;
    }
    judgeDisks(Number((counts as unknown[])[1]));
  }

  /** @param held number of replicas that have the last add on disk; @throws {TooFewReplicas} if disks count and too few have */
  function judgeDisks(held: number): void {
    askedAt = performance.now();
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
    // The first call of a transaction puts EXEC into the pipeline, the second one sends all of it.
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
    /** @returns what sends a transaction, and waits for replicas */
    replicated(multi: ChainableCommander): Exec {
      const send: Exec = Object.getPrototypeOf(multi).exec;
      let isAgain = false;
      // What lost its server is sent once more as it is: by this very function.
      return () => {
        if (isAgain) return send.call(multi);
        isAgain = true;
        return execAndWait(multi, send);
      };
    },

    /**
     * After an add that too few replicas took, nothing is added before they have caught up. Who was answered 503 asks
     * again, and each time the same would be stored anew.
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

/** Returns undefined while the server does not answer. A user who may not ask is treated as if the server had no such command. */
async function knowsWaitAof(server: Redis): Promise<boolean | undefined> {
  try {
    const [found] = (await server.call('COMMAND', 'INFO', 'WAITAOF')) as unknown[];
    return Array.isArray(found);
  } catch (error) {
    return /NOPERM|unknown command/i.test((error as Error).message) ? false : undefined;
  }
}

/** Whether a server says that another one has the slot, or will have. What was to be added is not stored. */
const isElsewhere = (error: unknown): boolean =>
  /^(MOVED|ASK|TRYAGAIN)\b/.test((error as Error | undefined)?.message ?? '');

/** Asks anew who serves which slot. A pipeline with WAIT in it is not led elsewhere by ioredis. */
function lookForSlots(redis: RedisClient): Promise<void> {
  return isCluster(redis)
    ? new Promise((resolve) => redis.refreshSlotsCache(() => resolve()))
    : Promise.resolve();
}

/** Milliseconds before an add is tried again whose lanes another server has, or will have in a moment. */
const ELSEWHERE_MS = 20;

/**
 * Adds where the lanes are by now: what is added again under the same ids is stored once.
 * @param timeout milliseconds after which what the last try threw is thrown
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
      await lookForSlots(redis);
    }
  }
}
