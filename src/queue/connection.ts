import pg from 'pg';
import type { Config } from '../platform/config.ts';
import { IDLE_TIMEOUT, requireSession } from '../store/database.ts';
import { PostgresClient } from '../store/postgres-client.ts';
import { createPatientBackend, QUEUE_SCHEMA, type QueueAccess } from './bullmq-queues.ts';
import type { LaneStore } from './lane-store.ts';
import { openPostgresLanes } from './lane-store-postgres.ts';
import { openRedisLanes } from './lane-store-redis.ts';
import { layoutOf, prefixOf } from './lanes.ts';
import { openRedis, type Patience, pingRedis, type RedisClient } from './open-redis.ts';

/**
 * The connection to the queue, and the lanes in it. Only the files that use BullMQ depend on whether the queue is in
 * Redis or in Postgres.
 */
export interface QueueConnection extends QueueAccess {
  /** The lanes, through this connection. */
  laneStore: LaneStore;
  /**
   * Checks the connection.
   * @param patience milliseconds after which a connection of the Postgres pool is given up; a connection to Redis has
   *   its own timeout, or none
   * @throws if the queue does not answer, or has no tables in Postgres
   */
  ping(patience: number): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Connects producers and the console. Commands fail at once while the queue is unavailable, so that a request gets a
 * 503 instead of hanging.
 */
export function connectProducer(config: Config, databaseUrl: string): QueueConnection {
  return connect(config, databaseUrl, producerPatience(config));
}

const producerPatience = ({ QUEUE_TIMEOUT_MS }: Config): Patience => ({
  commandTimeout: QUEUE_TIMEOUT_MS,
  waits: false,
});

/** Opens the configured Redis for a producer: a command fails at once while Redis is unavailable. */
export function openProducerRedis(config: Config): RedisClient {
  return openRedis(config, producerPatience(config));
}

/** Connects workers. Commands wait until the queue is available again. */
export function connectWorker(config: Config, databaseUrl: string): QueueConnection {
  return connect(config, databaseUrl, { waits: true });
}

function connect(config: Config, databaseUrl: string, patience: Patience): QueueConnection {
  if (config.QUEUE === 'redis') {
    const redis = openRedis(config, patience);
    const layout = layoutOf(config);
    const access = {
      kind: 'redis' as const,
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
    };
    return {
      ...access,
      laneStore: openRedisLanes(access),
      ping: () => pingRedis(redis, layout.shards),
      stop: async () => redis.disconnect(),
    };
  }
  const pool = new pg.Pool({
    Client: PostgresClient,
    connectionString: config.DATABASE_DIRECT_URL || databaseUrl,
    session: { search_path: QUEUE_SCHEMA },
    // BullMQ uses LISTEN and finds its tables by the search path, so it needs a session.
    verify: requireSession('the queue in Postgres'),
    // A BullMQ worker keeps one connection for LISTEN. A producer keeps none, but may need two at the same time.
    max: patience.waits ? config.DATABASE_POOL_SIZE + config.LANES : Math.max(2, config.DATABASE_POOL_SIZE),
    idleTimeoutMillis: IDLE_TIMEOUT,
    keepAlive: true,
  } as pg.PoolConfig);
  // Every queue, worker and lane that shares the pool listens for its errors.
  pool.setMaxListeners(0);
  pool.on('error', () => {});
  // BullMQ holds some connections without listening for their errors, which would end the process.
  pool.on('connect', (client) => client.on('error', () => {}));
  const access = {
    kind: 'postgres' as const,
    options: { connection: pool as never },
    layout: layoutOf(config),
    factory: createPatientBackend as unknown as undefined,
    redis: undefined,
    ready: () => true,
  };
  return {
    ...access,
    laneStore: openPostgresLanes(access),
    async ping(patience) {
      await pool.query({ text: 'select from job limit 0', query_timeout: patience } as pg.QueryConfig);
    },
    stop: () => pool.end(),
  };
}
