import type { ChainableCommander } from 'ioredis';
import type { Config } from '../platform/config.ts';
import { Cluster, Command, Redis } from './ioredis.ts';
import { everyShard, markOf } from './lanes.ts';

/** A client of one Redis, or of a Redis Cluster: both take the same commands. */
export type RedisClient = Redis | Cluster;

/** Sends a transaction, and gives the answers to its commands. */
export type Exec = ChainableCommander['exec'];

/** The settings that say where Redis is. */
export type RedisAddress = Pick<
  Config,
  'REDIS_URL' | 'REDIS_SENTINELS' | 'REDIS_SENTINEL_NAME' | 'REDIS_CLUSTER_NODES'
>;

/** How a client behaves while its server is away. */
export interface Patience {
  /** Milliseconds for one command; absent: as long as it takes. */
  commandTimeout?: number;
  /** Whether commands wait for the server; else they fail at once. */
  waits: boolean;
}

/** A command that Redis did not carry out: the server cannot be reached, or refuses commands for now. */
export class RedisUnavailable extends Error {
  override name = 'RedisUnavailable';
}

/** How Redis begins an error about its own state: full, starting, or not the server that writes. */
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
 * Opens a client of the Redis that the settings name. Every client of the code is opened here, so that nothing else
 * knows whether that is one server, one behind Sentinels, or a cluster.
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

/** Milliseconds between two looks at who serves which slot: a server that went silent says nothing of its successor. */
const SLOTS_MS = 2000;

/** The same of clients that are many, one for each lane that is worked. */
const SLOTS_OF_WORKERS_MS = 5000;

/** REDIS_URL gives user, password and TLS; its host and port are not used. */
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
    // A certificate names hosts, not addresses.
    ...(isEncrypted && { dnsLookup: (host, found) => found(null, host) }),
  });
}

/** Host and port of each, of a list with commas between. */
export function addressesOf(list: string, usual: number): { host: string; port: number }[] {
  return list.split(',').map((address) => {
    const { hostname, port } = new URL(`redis://${address.trim()}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || usual };
  });
}

/** Milliseconds that one Sentinel may take to name the primary before the next is asked. */
const SENTINEL_PATIENCE = 1000;

/** How the primary is found where Sentinels know it: what they name stands for the host and port of REDIS_URL. */
function sentinelOptions({ REDIS_URL, REDIS_SENTINELS, REDIS_SENTINEL_NAME }: RedisAddress) {
  if (REDIS_SENTINELS === '') return {};
  return {
    sentinels: addressesOf(REDIS_SENTINELS, 26_379),
    name: REDIS_SENTINEL_NAME,
    sentinelRetryStrategy: soonAgain,
    sentinelCommandTimeout: SENTINEL_PATIENCE,
    enableTLSForSentinelMode: REDIS_URL.startsWith('rediss:'),
    // A primary that hangs keeps its connections: they leave it when the Sentinels do.
    failoverDetector: true,
    sentinelReconnectStrategy: soonAgain,
  };
}

/** Why a Redis could not be connected to, until it is. */
const troubles = new WeakMap<RedisClient, Error>();

/** A cluster says that it could not be looked at, and keeps to itself why. */
function reasonOf(error: Error & { lastNodeError?: Error }): Error {
  return error.lastNodeError ?? error;
}

export const isCluster = (redis: RedisClient): redis is Cluster => redis instanceof Cluster;

/**
 * Asks the servers that have lanes. One that is away takes its shards with it, and none of the others.
 * @throws when none of them answers
 */
export async function pingRedis(redis: RedisClient, shards: number): Promise<void> {
  if (redis.status !== 'ready') throw troubles.get(redis) ?? new Error('not connected');
  if (!isCluster(redis)) return void (await redis.ping());
  // A command without a key goes to any server of a cluster.
  const asked = everyShard(shards).map((shard) => redis.get(markOf(shard)));
  await Promise.any(asked).catch((error: AggregateError) => {
    throw error.errors[0];
  });
}

const slotOf = (key: string): number => Number(new Command('get', [key]).getSlot());

/** The server that has a key; undefined: nobody is known to. A replica is one that can be asked, no more. */
export function serverOf(redis: RedisClient, key: string): Redis | undefined {
  if (!isCluster(redis)) return redis;
  const [primary] = redis.slots[slotOf(key)] ?? [];
  return redis.nodes('all').find(({ options }) => `${options.host}:${options.port}` === primary);
}

/** The servers that have lanes, each once. @throws when nobody is known to have those of a shard */
export function laneServers(redis: RedisClient, shards: number): Redis[] {
  return [...new Set(everyShard(shards).map((shard) => serverOfShard(redis, shard)))];
}

/** @throws when nobody is known to have its lanes */
export function serverOfShard(redis: RedisClient, shard: number): Redis {
  const server = serverOf(redis, markOf(shard));
  if (!server) throw new Error(`no server is known to have the lanes of shard ${shard}`);
  return server;
}

/** All servers that this client knows, replicas included: each may have the lanes one day. */
export const allServers = (redis: RedisClient): Redis[] => (isCluster(redis) ? redis.nodes('all') : [redis]);

export const nameOf = ({ options }: Redis): string => `${options.host}:${options.port}`;

/** Calls `listener` whenever a server is connected to, and who it is. @returns what ends that */
export function whenConnected(redis: RedisClient, listener: (server: Redis) => void): () => void {
  if (!isCluster(redis)) {
    const tell = () => listener(redis);
    redis.on('ready', tell);
    return () => void redis.off('ready', tell);
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
