import type { Config } from '../platform/config.ts';
import { Cluster, Command, Redis } from './ioredis.ts';
import { everyShard, markOf } from './lanes.ts';

/** A client of one Redis, or of a Redis Cluster: both take the same commands. */
export type RedisClient = Redis | Cluster;

/** The settings that contain the address of Redis. */
export type RedisAddress = Pick<
  Config,
  'REDIS_URL' | 'REDIS_SENTINELS' | 'REDIS_SENTINEL_NAME' | 'REDIS_CLUSTER_NODES'
>;

/** How a client behaves while its server is away. */
export interface Patience {
  /** Milliseconds for one command; absent: no limit. */
  commandTimeout?: number;
  /** Whether commands wait for the server; otherwise they fail at once. */
  waits: boolean;
}

/** A command failed because the server cannot be reached or refuses commands for now. */
export class RedisUnavailable extends Error {
  override name = 'RedisUnavailable';
}

/** Prefixes of Redis errors that are temporary, for example out of memory, loading, or read-only. */
const NOT_NOW = /^(OOM|LOADING|MISCONF|READONLY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|BUSY)\b/;

/**
 * Waits for the answer to a command.
 * @throws {RedisUnavailable} if the command may succeed in a moment; any other error of the server as it is
 */
export async function answerOf<T>(command: Promise<T>): Promise<T> {
  try {
    return await command;
  } catch (error) {
    const { name, message } = error as Error;
    if (name === 'ReplyError' && !NOT_NOW.test(message)) throw error;
    throw new RedisUnavailable(message, { cause: error });
  }
}

const soonAgain = (attempt: number) => Math.min(attempt * 50, 1000);

/**
 * Opens a client of the configured Redis. All clients are opened here, so that the rest of the code is independent of
 * whether Redis is one server, a server monitored by Sentinels, or a cluster.
 */
export function openRedis(address: RedisAddress, patience: Patience): RedisClient {
  const redis = address.REDIS_CLUSTER_NODES ? openCluster(address, patience) : openOne(address, patience);
  redis.on('error', (error: Error) => troubles.set(redis, reasonOf(error)));
  redis.on('ready', () => troubles.delete(redis));
  return redis;
}

const ofServer = ({ commandTimeout, waits }: Patience) => ({
  maxRetriesPerRequest: waits ? null : 0,
  ...(commandTimeout !== undefined && { commandTimeout }),
});

function openOne(address: RedisAddress, patience: Patience): Redis {
  return new Redis(address.REDIS_URL, {
    ...ofServer(patience),
    enableOfflineQueue: patience.waits,
    retryStrategy: soonAgain,
    ...sentinelOptions(address),
  });
}

/**
 * Milliseconds between two refreshes of the slot map: a server that stopped responding does not announce its
 * successor.
 */
const SLOTS_MS = 2000;

/** The interval for worker clients, of which there is one for each lane. */
const SLOTS_OF_WORKERS_MS = 5000;

/** Opens a cluster client. User, password and TLS come from REDIS_URL; its host and port are not used. */
function openCluster({ REDIS_URL, REDIS_CLUSTER_NODES }: RedisAddress, patience: Patience): Cluster {
  const { username, password, protocol } = new URL(REDIS_URL);
  const isEncrypted = protocol === 'rediss:';
  return new Cluster(addressesOf(REDIS_CLUSTER_NODES, 6379), {
    redisOptions: {
      ...ofServer(patience),
      ...(username && { username: decodeURIComponent(username) }),
      ...(password && { password: decodeURIComponent(password) }),
      ...(isEncrypted && { tls: {} }),
    },
    enableOfflineQueue: patience.waits,
    clusterRetryStrategy: soonAgain,
    slotsRefreshInterval: patience.waits ? SLOTS_OF_WORKERS_MS : SLOTS_MS,
    // Host names are passed on unresolved, because the certificates contain host names and not addresses.
    ...(isEncrypted && { dnsLookup: (host, callback) => callback(null, host) }),
  });
}

/** Parses a comma-separated list of hosts with optional ports. */
export function addressesOf(list: string, usual: number): { host: string; port: number }[] {
  return list.split(',').map((address) => {
    const { hostname, port } = new URL(`redis://${address.trim()}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || usual };
  });
}

/** Milliseconds that one Sentinel may take to name the primary before the next one is asked. */
const SENTINEL_PATIENCE = 1000;

/** Options to find the primary through Sentinels. The address they return replaces the host and port of REDIS_URL. */
function sentinelOptions({ REDIS_URL, REDIS_SENTINELS, REDIS_SENTINEL_NAME }: RedisAddress) {
  if (REDIS_SENTINELS === '') return {};
  return {
    sentinels: addressesOf(REDIS_SENTINELS, 26_379),
    name: REDIS_SENTINEL_NAME,
    sentinelRetryStrategy: soonAgain,
    sentinelCommandTimeout: SENTINEL_PATIENCE,
    enableTLSForSentinelMode: REDIS_URL.startsWith('rediss:'),
    // Connections to a primary that hangs stay open. With this option they close when the Sentinels fail over.
    failoverDetector: true,
    sentinelReconnectStrategy: soonAgain,
  };
}

/** The last connection error of each client that is not connected. */
const troubles = new WeakMap<RedisClient, Error>();

/** The error of a cluster only states that the refresh failed; its `lastNodeError` has the reason. */
function reasonOf(error: Error & { lastNodeError?: Error }): Error {
  return error.lastNodeError ?? error;
}

export const isCluster = (redis: RedisClient): redis is Cluster => redis instanceof Cluster;

/**
 * Pings the servers that have lanes. One that is unavailable affects only its own shards.
 * @throws if all of them fail to answer
 */
export async function pingRedis(redis: RedisClient, shards: number): Promise<void> {
  if (redis.status !== 'ready') throw troubles.get(redis) ?? new Error('not connected');
  if (!isCluster(redis)) return void (await redis.ping());
  // A command without a key goes to any server of a cluster.
  const reads = everyShard(shards).map((shard) => redis.get(markOf(shard)));
  await Promise.any(reads).catch((error: AggregateError) => {
    throw error.errors[0];
  });
}

const slotOf = (key: string): number => Number(new Command('get', [key]).getSlot());

/** The server that has a key; undefined if it is unknown. With a cluster this is the primary of the slot. */
export function serverOf(redis: RedisClient, key: string): Redis | undefined {
  if (!isCluster(redis)) return redis;
  const [primary] = redis.slots[slotOf(key)] ?? [];
  return redis.nodes('all').find(({ options }) => `${options.host}:${options.port}` === primary);
}

/** The servers that have lanes, each once. @throws if the server of a shard is unknown */
export function laneServers(redis: RedisClient, shards: number): Redis[] {
  return [...new Set(everyShard(shards).map((shard) => serverOfShard(redis, shard)))];
}

/** @throws if the server of the shard is unknown */
export function serverOfShard(redis: RedisClient, shard: number): Redis {
  const server = serverOf(redis, markOf(shard));
  if (!server)
    throw new Error(
      `no primary of the Redis Cluster serves the slot of shard ${shard}; restore the primary, or let a replica take over`,
    );
  return server;
}

/** All servers known to this client, including replicas: each may have the lanes one day. */
export const allServers = (redis: RedisClient): Redis[] => (isCluster(redis) ? redis.nodes('all') : [redis]);

export const nameOf = ({ options }: Redis): string => `${options.host}:${options.port}`;

/** Calls `listener` with each server that connects. @returns a function that removes the listener */
export function whenConnected(redis: RedisClient, listener: (server: Redis) => void): () => void {
  if (!isCluster(redis)) {
    const notify = () => listener(redis);
    redis.on('ready', notify);
    return () => void redis.off('ready', notify);
  }
  const meet = (server: Redis) => void server.on('ready', () => listener(server));
  for (const server of redis.nodes('all')) meet(server);
  redis.on('+node', meet);
  return () => void redis.off('+node', meet);
}

/** Calls `listener` whenever the connection to a server is lost. */
export function whenDisconnected(redis: RedisClient, listener: () => void): void {
  redis.on('close', listener);
  if (isCluster(redis)) redis.on('-node', listener);
}
