import type { QueueOptions } from 'bullmq';
import pg from 'pg';
import type { Config } from '../platform/config.ts';
import { IDLE_TIMEOUT, PostgresClient, requireSession } from '../store/database.ts';
import { createPostgresBackend, Queue } from './bullmq.ts';
import { type Layout, laneName, layoutOf, prefixOf, shardOfLane } from './lanes.ts';
import { openRedis, type Patience, pingRedis, type RedisClient } from './open-redis.ts';
import type { Replication } from './replicas.ts';

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
const createPatientBackend: typeof createPostgresBackend = (...given) => {
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

/**
 * Where the queue lives. BullMQ's classes take `options` and, as their last argument, `factory`; nothing
 * else knows which of the two backends it is.
 */
export interface QueueConnection {
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
  /**
   * @param patience milliseconds after which a connection of the Postgres pool is given up; a connection to
   *   Redis has a patience of its own, or none
   * @throws when the queue does not answer, or has no tables in Postgres
   */
  ping(patience: number): Promise<void>;
  stop(): Promise<void>;
}

/** The schema that BullMQ's own tables live in. */
export const QUEUE_SCHEMA = 'bullmq';

/**
 * For producers and the dashboard: fails at once while the queue is away, so that a request is answered
 * with 503 and never hangs.
 */
export function connectProducer(config: Config, databaseUrl: string): QueueConnection {
  return connect(config, databaseUrl, producerPatience(config));
}

const producerPatience = ({ QUEUE_TIMEOUT_MS }: Config): Patience => ({
  commandTimeout: QUEUE_TIMEOUT_MS,
  waits: false,
});

/** The Redis of the settings as producers use it: a command fails at once while it is away. */
export function openProducerRedis(config: Config): RedisClient {
  return openRedis(config, producerPatience(config));
}

/** For workers: waits for the queue to come back. */
export function connectWorker(config: Config, databaseUrl: string): QueueConnection {
  return connect(config, databaseUrl, { waits: true });
}

function connect(config: Config, databaseUrl: string, patience: Patience): QueueConnection {
  if (config.QUEUE === 'redis') {
    const redis = openRedis(config, patience);
    const layout = layoutOf(config);
    return {
      kind: 'redis',
      options: {
        connection: redis,
        prefix: prefixOf(0),
        // BullMQ asks each handle's server for its version, and keeps a failed answer for as long as the handle lives.
        // A producer's commands fail while Redis is away, so one lost reply would leave the handle unusable.
        ...(!patience.waits && { skipVersionCheck: true }),
      },
      layout,
      factory: undefined,
      redis,
      ...(config.REDIS_WAIT_REPLICAS > 0 && {
        replication: { replicas: config.REDIS_WAIT_REPLICAS, open: () => openRedis(config, patience) },
      }),
      ready: () => redis.status === 'ready',
      ping: () => pingRedis(redis, layout.shards),
      stop: async () => redis.disconnect(),
    };
  }
  const pool = new pg.Pool({
    Client: PostgresClient,
    connectionString: config.DATABASE_DIRECT_URL || databaseUrl,
    session: { search_path: QUEUE_SCHEMA },
    // BullMQ listens, and finds its tables by the search path.
    verify: requireSession('the queue in Postgres'),
    // A worker of BullMQ holds a connection that listens. A producer holds none, and may need two at the same time.
    max: patience.waits ? config.DATABASE_POOL_SIZE + config.LANES : Math.max(2, config.DATABASE_POOL_SIZE),
    idleTimeoutMillis: IDLE_TIMEOUT,
    keepAlive: true,
  } as pg.PoolConfig);
  // Every queue, worker and lane that shares the pool listens for its errors.
  pool.setMaxListeners(0);
  pool.on('error', () => {});
  // BullMQ holds some connections without listening for their errors, which would end the process.
  pool.on('connect', (client) => client.on('error', () => {}));
  return {
    kind: 'postgres',
    options: { connection: pool as never },
    layout: layoutOf(config),
    factory: createPatientBackend as unknown as undefined,
    redis: undefined,
    ready: () => true,
    async ping(patience) {
      await pool.query({ text: 'select from job limit 0', query_timeout: patience } as pg.QueryConfig);
    },
    stop: () => pool.end(),
  };
}

/** Entries that BullMQ keeps of its stream of events, which only the dashboard reads; 10,000 unless told. */
const MAX_EVENTS = 200;

/** What BullMQ's classes need to find a lane: the keys of its shard have a prefix of their own. */
export function optionsOfLane({ options, layout }: QueueConnection, lane: number) {
  const shard = shardOfLane(layout, lane);
  return shard === 0 ? options : { ...options, prefix: prefixOf(shard) };
}

/** As `openQueue`, for the lane of this number. */
export function openLane<Data>(connection: QueueConnection, lane: number): Queue<Data> {
  return openQueue(connection, laneName(lane), optionsOfLane(connection, lane));
}

/** As `openLane`, for every lane of all shards, in their order. */
export function openLanes<Data>(connection: QueueConnection, lanes: number): Queue<Data>[] {
  return Array.from({ length: lanes }, (_, lane) => openLane<Data>(connection, lane));
}

/**
 * A queue to look at or to add to. Every handle is opened here, since each one writes its options into the
 * queue's own settings.
 */
export function openQueue<Data>(
  connection: QueueConnection,
  name: string,
  where: QueueConnection['options'] = connection.options,
): Queue<Data> {
  const options = { ...where, streams: { events: { maxLen: MAX_EVENTS } } };
  const queue = new Queue<Data>(name, options, connection.factory);
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
export async function forgetEvents({ redis, options }: QueueConnection, queue: Queue): Promise<void> {
  // BullMQ trims its log only approximately.
  if (redis) return void (await redis.del(queue.toKey('events')));
  const pool = options.connection as unknown as pg.Pool;
  await pool.query(`delete from ${QUEUE_SCHEMA}.event where queue = $1`, [queue.name]);
}
