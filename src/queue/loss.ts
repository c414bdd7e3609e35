import type { ChainableCommander } from 'ioredis';
import { Gauge, type Registry } from 'prom-client';
import { newId } from '../platform/ids.ts';
import { within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import type { Pool } from '../store/database.ts';
import { type QueueLoss, type QueueState, rememberQueue } from '../store/installation.ts';
import { tellLoss } from '../store/queue-losses.ts';
import { markOf, prefixOf } from './lanes.ts';
import { movesVersionOf } from './moves.ts';
import type { Exec, RedisClient } from './open-redis.ts';

/** Milliseconds for each answer of Redis. */
const PATIENCE_MS = 2000;

/** Looks within so many milliseconds remember nothing new: any number of processes write once a second. */
const OFTEN_ENOUGH_MS = 1000;

/** A request is accepted a while before its envelope is made: it waits for the flush before, and no longer than clients do. */
const ACCEPTED_BEFORE_MS = 2000;

export interface LossWatch {
  pool: Pool;
  redis: RedisClient;
  shard: number;
  /** When the oldest envelope of the shard was added, in epoch milliseconds; undefined: it has none. */
  oldest(): Promise<number | undefined>;
  /** The process. */
  name: string;
  log: Log;
  /** Of the process's own producer. */
  additions: Additions | undefined;
  /** Called after each loss. */
  onLoss(): void;
}

/**
 * Compares what Redis holds with what the installation knew of it, and what this process has been answered. Another
 * mark, or none: Redis came back empty, or was replaced by another one. A count of additions that is lower than
 * before: it went back in time.
 *
 * The order of the steps is what makes it right: what is known is read first, then Redis. What one process reads there
 * can be no less than what another had seen before, unless something is lost.
 */
export function watchForLoss({ pool, redis, shard, oldest, name, log, additions, onLoss }: LossWatch) {
  let generation: number | undefined;

  /**
   * @param state as it was read a moment ago
   * @param last whether this process looks no more
   * @returns 'away' when Redis was not there to be looked at, 'lost' when it has lost something
   */
  async function look(state: QueueState, last: boolean): Promise<'away' | 'seen' | 'lost'> {
    if (generation !== state.generation) begin(state.generation);
    if (redis.status !== 'ready') return 'away';
    const known = Math.max(additions?.highest() ?? 0, state.mark === null ? 0 : state.additions);
    const fell = additions?.fell() ?? false;
    const found = await within(PATIENCE_MS, readRedis(redis, shard));
    const missing = state.mark !== null && found.mark !== state.mark ? 'empty' : undefined;
    const lost = missing ?? (fell || found.additions < known ? 'behind' : undefined);
    if (lost) {
      const told = await tellLoss(pool, state.generation, {
        ...{ ...found, shard, found: lost, known, by: name },
      });
      if (told === false) log.info('Redis was replaced while the queue was empty; no data lost');
      if (told !== undefined) begin(state.generation + 1);
      return 'lost';
    }
    if (last || state.age === null || state.age >= OFTEN_ENOUGH_MS) {
      const added = await within(PATIENCE_MS, oldest());
      const waitingSince = added === undefined ? undefined : added - ACCEPTED_BEFORE_MS;
      await rememberQueue(pool, state.generation, { ...found, shard, now: state.now, waitingSince });
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

  return { look };
}

async function readRedis(redis: RedisClient, shard: number): Promise<{ mark: string; additions: number }> {
  const keys = [markOf(shard), additionsOf(shard)];
  let [mark, additions] = await redis.mget(keys);
  if (!mark) {
    // Holds an id that the first of our processes leaves: with another one, or none, what the Redis held is gone.
    await redis.set(markOf(shard), newId(), 'NX');
    [mark, additions] = await redis.mget(keys);
  }
  return { mark: mark ?? '', additions: Number(additions ?? 0) };
}

/** What has happened and what is lost by it, without a full stop. */
export function whatIsLost({ found, shard, acceptedFrom, acceptedUntil }: QueueLoss): string {
  const what =
    found === 'empty'
      ? 'Redis came back empty, or was replaced by another one'
      : 'Redis came back with less than it held';
  const whose = shard ? ` (shard ${shard})` : '';
  return `${what}${whose}: objects that were accepted from ${acceptedFrom} to ${acceptedUntil} and not applied are lost`;
}

/** What an operator has to know and to do, in one sentence. */
export const describeLoss = (loss: QueueLoss) =>
  `${whatIsLost(loss)}; penstock queue confirm-loss ${loss.latest} ends this message`;

/** As log lines and the pages of processes spell it. */
export function printedLoss({ acceptedFrom, acceptedUntil, ...loss }: QueueLoss) {
  return { ...loss, accepted_from: acceptedFrom, accepted_until: acceptedUntil };
}

/** Shows in a process's metrics whether the queue has lost something that nobody has confirmed. */
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

/** How many times envelopes were added, in Redis: it only grows there, and a smaller one shows that Redis went back in time. */
const additionsOf = (shard: number): string => `${prefixOf(shard)}:additions`;
export const ADDITIONS = additionsOf(0);

/** What a producer knows of the count, from the answers to its own adds. */
export interface Additions {
  /** The highest count that was answered; 0: none yet. */
  highest(): number;
  /** Whether a count was answered that had been reached before. */
  fell(): boolean;
  /** Begins anew, when the count is known to have been lost. */
  reset(): void;
  /** Called when a count falls. */
  onFall(listener: () => void): void;
  /** The version of the moves from the shard (src/queue/moves.ts) at the last add. */
  movesSeen(): string | undefined;
}

/** Counts as adds are sent. */
export interface AdditionCounter extends Additions {
  /** @returns what sends a transaction, which it sends by `exec`, with its count */
  counted(multi: ChainableCommander, exec: Exec): Exec;
}

/**
 * Counts what is added in the very transaction that adds it, so that both are on disk or neither: one command more for a
 * flush.
 */
export function countAdditions({ shard, shards }: { shard: number; shards: number }): AdditionCounter {
  let highest = 0;
  let fell = false;
  let moves: string | undefined;
  let listener = () => {};

  function note(count: number): void {
    if (count > highest) highest = count;
    else {
      fell = true;
      listener();
    }
  }

  async function execCounted(multi: ChainableCommander, exec: Exec): ReturnType<Exec> {
    if (shards > 1) multi.get(movesVersionOf(shard));
    multi.incr(additionsOf(shard));
    const answers = await exec();
    const [error, count] = answers?.pop() ?? [];
    if (shards > 1) moves = String(answers?.pop()?.[1] ?? '0');
    if (!error && typeof count === 'number') note(count);
    return answers;
  }

  return {
    counted(multi, exec) {
      let isAgain = false;
      // Led to another server of a cluster, a transaction is sent once more as it is: by this very function.
      return () => {
        if (isAgain) return exec();
        isAgain = true;
        return execCounted(multi, exec);
      };
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
