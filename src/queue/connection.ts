import pg from 'pg';
import type { Config } from '../platform/config.ts';
import { IDLE_TIMEOUT, PostgresClient, requireSession } from '../store/database.ts';
import { createPatientBackend, QUEUE_SCHEMA, type QueueAccess } from './bullmq-queues.ts';
import type { LaneStore } from './lane-store.ts';
import { openPostgresLanes } from './lane-store-postgres.ts';
import { openRedisLanes } from './lane-store-redis.ts';
import { layoutOf, prefixOf } from './lanes.ts';
import { openRedis, type Patience, pingRedis, type RedisClient } from './open-redis.ts';

/** Where the queue lives, and the lanes in it. Only BullMQ's own files know which of the two backends it is. */
export interface QueueConnection extends QueueAccess {
  /** The lanes, through this connection. */
  laneStore: LaneStore;
  /**
   * @param patience milliseconds after which a connection of the Postgres pool is given up; a connection to
   *   Redis has a patience of its own, or none
   * @throws when the queue does not answer, or has no tables in Postgres
   */
  ping(patience: number): Promise<void>;
  stop(): Promise<void>;
}

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
