import type { ChainableCommander } from 'ioredis';
import { Gauge, type Registry } from 'prom-client';
import { newId } from '../platform/ids.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import type { Pool } from '../store/database.ts';
import { type QueueLoss, type QueueState, rememberQueue } from '../store/installation.ts';
import { reportLoss } from '../store/queue-losses.ts';
import { markOf, prefixOf } from './lanes.ts';
import { movesVersionOf } from './moves.ts';
import type { RedisClient } from './open-redis.ts';

/** Milliseconds for each answer of Redis. */
const PATIENCE_MS = 2000;

/** Minimum milliseconds between two records of the state, over all processes. */
const OFTEN_ENOUGH_MS = 1000;

/**
 * Maximum milliseconds between the acceptance of a request and the creation of its envelope: a request waits for the
 * previous flush, but not longer than clients wait.
 */
const ACCEPTED_BEFORE_MS = 2000;

interface LossWatch {
  pool: Pool;
  redis: RedisClient;
  shard: number;
  /** When the oldest envelope of the shard was added, in epoch milliseconds; undefined: it has none. */
  oldest(): Promise<number | undefined>;
  /** Name of the process. */
  name: string;
  log: Log;
  /** Counts of the process's own producer. */
  additions: Additions | undefined;
  /** Called after each loss. */
  onLoss(): void;
}

/**
 * Compares the contents of Redis with the state that the installation has recorded, and with the answers that this
 * process received. A different or missing mark means that Redis came back empty or was replaced. A lower count of
 * additions means that Redis lost its latest writes.
 *
 * The recorded state has to be read before Redis: without a loss, Redis then has at least the additions that any
 * process had recorded.
 */
export function watchForLoss({ pool, redis, shard, oldest, name, log, additions, onLoss }: LossWatch) {
  let generation: number | undefined;

  /**
   * Checks the shard once, and records its state if that is due.
   * @param state as read a moment ago
   * @param last whether this is the final check of the process
   * @returns 'away' if Redis is not connected, 'lost' if it has lost data
   */
  async function check(state: QueueState, last: boolean): Promise<'away' | 'seen' | 'lost'> {
    if (generation !== state.generation) begin(state.generation);
    if (redis.status !== 'ready') return 'away';
    const highestSeen = Math.max(additions?.highest() ?? 0, state.mark === null ? 0 : state.additions);
    const fell = additions?.fell() ?? false;
    const redisState = await withTimeout(PATIENCE_MS, readRedis(redis, shard));
    const missing = state.mark !== null && redisState.mark !== state.mark ? 'empty' : undefined;
    const lost = missing ?? (fell || redisState.additions < highestSeen ? 'behind' : undefined);
    if (lost) {
      const recorded = await reportLoss(pool, state.generation, {
        ...{ ...redisState, shard, found: lost, highestSeen, by: name },
      });
      if (recorded === false) log.info('Redis was replaced while the queue was empty; no data lost');
      if (recorded !== undefined) begin(state.generation + 1);
      return 'lost';
    }
    if (last || state.age === null || state.age >= OFTEN_ENOUGH_MS) {
      const added = await withTimeout(PATIENCE_MS, oldest());
      const waitingSince = added === undefined ? undefined : added - ACCEPTED_BEFORE_MS;
      await rememberQueue(pool, state.generation, { ...redisState, shard, now: state.now, waitingSince });
    }
    return 'seen';
  }

  function begin(next: number): void {
    const isFirst = generation === undefined;
    generation = next;
    if (isFirst) return;
    additions?.reset();
    onLoss();
  }

  return { check };
}

async function readRedis(redis: RedisClient, shard: number): Promise<{ mark: string; additions: number }> {
  const keys = [markOf(shard), additionsOf(shard)];
  let [mark, additions] = await redis.mget(keys);
  if (!mark) {
    // The first process stores a random id. If the id differs or is missing later, the contents of Redis are gone.
    await redis.set(markOf(shard), newId(), 'NX');
    [mark, additions] = await redis.mget(keys);
  }
  return { mark: mark ?? '', additions: Number(additions ?? 0) };
}

/** Describes the loss: what happened to Redis, and the period of the lost objects. Has no full stop. */
export function whatIsLost({ found, shard, acceptedFrom, acceptedUntil }: QueueLoss): string {
  const what =
    found === 'empty'
      ? 'Redis came back empty, or was replaced by another one'
      : 'Redis came back with less than it held';
  const whose = shard ? ` (shard ${shard})` : '';
  return `${what}${whose}: objects that were accepted from ${acceptedFrom} to ${acceptedUntil} and not applied are lost`;
}

/** Describes the loss and the command to confirm it, in one sentence. */
export const describeLoss = (loss: QueueLoss) =>
  `${whatIsLost(loss)}; penstock queue confirm-loss ${loss.latest} ends this message`;

/** Formats a loss for log lines and status pages. */
export function printedLoss({ acceptedFrom, acceptedUntil, ...loss }: QueueLoss) {
  return { ...loss, accepted_from: acceptedFrom, accepted_until: acceptedUntil };
}

/** Adds a metric with the number of losses that an operator has not confirmed yet. */
export function addLossMetric(registry: Registry, loss: () => QueueLoss | undefined): void {
  new Gauge({
    name: 'penstock_queue_losses_unconfirmed',
    help: 'Unacknowledged queue losses.',
    registers: [registry],
    collect() {
      this.set(loss()?.losses ?? 0);
    },
  });
}

/** Key of the number of adds, in Redis. It only grows there, so a lower value shows that Redis went back in time. */
export const additionsOf = (shard: number): string => `${prefixOf(shard)}:additions`;

/** The producer's view of the count, from the answers to its own adds. */
export interface Additions {
  /** The highest count received; 0 before the first answer. */
  highest(): number;
  /** Whether an answer had a count that was reached before. */
  fell(): boolean;
  /** Starts again at 0 after a loss was recorded. */
  reset(): void;
  /** Called when a count falls. */
  onFall(listener: () => void): void;
  /** The version of the moves from the shard (src/queue/moves.ts) at the last add. */
  movesSeen(): string | undefined;
}

/** Increments the count with each add. */
export interface AdditionCounter extends Additions {
  /** Appends the commands that increment the count to an open transaction. */
  appendTo(transaction: ChainableCommander): void;
  /** @param results results of the appended commands, each with its error or null */
  note(results: [error: Error | null, result: unknown][]): void;
}

/**
 * Counts adds in the same transaction that adds, so that both are on disk or both are missing. This costs one more
 * command per flush.
 */
export function countAdditions({ shard, shards }: { shard: number; shards: number }): AdditionCounter {
  let highest = 0;
  let fell = false;
  let moves: string | undefined;
  let listener = () => {};

  function noteCount(count: number): void {
    if (count > highest) highest = count;
    else {
      fell = true;
      listener();
    }
  }

  return {
    appendTo(transaction) {
      if (shards > 1) transaction.get(movesVersionOf(shard));
      transaction.incr(additionsOf(shard));
    },
    note(results) {
      const [error, count] = results.at(-1) ?? [];
      if (shards > 1) moves = String(results.at(-2)?.[1] ?? '0');
      if (!error && typeof count === 'number') noteCount(count);
    },
    movesSeen: () => moves,
    highest: () => highest,
    fell: () => fell,
    reset() {
      highest = 0;
      fell = false;
    },
    onFall(given) {
      listener = given;
    },
  };
}
