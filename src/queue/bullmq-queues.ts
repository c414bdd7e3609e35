import type { QueueOptions } from 'bullmq';
import type pg from 'pg';
import type { Config } from '../platform/config.ts';
import { createPostgresBackend, Queue } from './bullmq.ts';
import { type Layout, laneName, prefixOf, shardOfLane } from './lanes.ts';
import type { RedisClient } from './open-redis.ts';
import type { Replication } from './replicas.ts';

/**
 * What BullMQ's classes need to reach the queue. They take `options` and, as their last argument, `factory`.
 */
export interface QueueAccess {
  kind: Config['QUEUE'];
  options: Pick<QueueOptions, 'connection' | 'prefix' | 'skipVersionCheck'>;
  layout: Layout;
  /**
   * Typed as absent: BullMQ's types tie each class to one backend, while to us the two are interchangeable.
   */
  factory: undefined;
  /** Absent when the queue lives in Postgres. */
  redis: RedisClient | undefined;
  /** Absent: an add is answered when the server has it on disk. */
  replication?: Replication;
  /** False while it is known that an add would not be stored now. */
  ready(): boolean;
}

/** The schema that BullMQ's own tables live in. */
export const QUEUE_SCHEMA = 'bullmq';

/** What BullMQ's classes keep of a first look at their tables; it is `private` there. */
interface Starting {
  waitUntilReady(): Promise<void>;
  readyPromise: Promise<void> | undefined;
}

/**
 * BullMQ's Postgres backend, which remembers that its first look at its tables failed for as long as it lives. A lane
 * that is opened at the moment at which Postgres goes away would never work again. Here a failed look is forgotten, and
 * the next call looks again.
 */
export const createPatientBackend: typeof createPostgresBackend = (...given) => {
  const backend = createPostgresBackend(...given);
  const { connection } = backend as unknown as { connection: Starting };
  for (const part of [backend as unknown as Starting, connection]) {
    const wait = part.waitUntilReady.bind(part);
    part.waitUntilReady = () => {
      const ready = wait();
      ready.catch(() => {
        part.readyPromise = undefined;
      });
      return ready;
    };
  }
  return backend;
};

/** The Postgres of a queue that lives there. */
export const queuePool = ({ options }: Pick<QueueAccess, 'options'>): pg.Pool =>
  options.connection as unknown as pg.Pool;

/** What BullMQ's classes need to find a lane: the keys of its shard have a prefix of their own. */
export function optionsOfLane({ options, layout }: QueueAccess, lane: number) {
  const shard = shardOfLane(layout, lane);
  return shard === 0 ? options : { ...options, prefix: prefixOf(shard) };
}

/** As `openQueue`, for the lane of this number. */
export function openLane<Data>(access: QueueAccess, lane: number): Queue<Data> {
  return openQueue(access, laneName(lane), optionsOfLane(access, lane));
}

/**
 * Gives a lane its limit of one job in work. A new handle writes the other settings of the lane as well, which an empty
 * store has forgotten too.
 */
export async function limitLane(access: QueueAccess, lane: number): Promise<void> {
  const queue = openLane(access, lane);
  await queue.setGlobalConcurrency(1).finally(() => queue.close());
}

/** Entries that BullMQ keeps of its stream of events, which only the dashboard reads; 10,000 unless told. */
const MAX_EVENTS = 200;

/**
 * A queue to look at or to add to. Every handle is opened here, since each one writes its options into the
 * queue's own settings.
 */
export function openQueue<Data>(
  access: QueueAccess,
  name: string,
  where: QueueAccess['options'] = access.options,
): Queue<Data> {
  return openBy(access, name, { ...where, streams: { events: { maxLen: MAX_EVENTS } } });
}

/** A queue to look at and nothing else: its settings stay those of the process that fills it. */
export function openQueueToShow(access: QueueAccess, name: string, where = access.options): Queue {
  return openBy(access, name, { ...where, skipMetasUpdate: true });
}

function openBy<Data>({ factory }: QueueAccess, name: string, options: QueueOptions): Queue<Data> {
  const queue = new Queue<Data>(name, options, factory);
  // Errors come back from the calls themselves; without a listener this event would end the process.
  queue.on('error', () => {});
  return queue;
}

/** Finished jobs that one step removes from a queue at most. */
const FINISHED_AT_ONCE = 1000;

/**
 * Removes at most 1,000 finished jobs of a queue. Jobs that a process of an earlier release added are kept when they
 * finish, with the personal data in them.
 */
export async function removeFinished(queue: Queue): Promise<void> {
  await queue.clean(0, FINISHED_AT_ONCE, 'completed');
}

/** Empties a queue's log of events, in which BullMQ repeats why a job failed. No process reads it. */
export async function forgetEvents(access: QueueAccess, queue: Queue): Promise<void> {
  // BullMQ trims its log only approximately.
  if (access.redis) return void (await access.redis.del(queue.toKey('events')));
  await queuePool(access).query(`delete from ${QUEUE_SCHEMA}.event where queue = $1`, [queue.name]);
}
