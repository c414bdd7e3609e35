import type { Socket } from 'node:net';
import { ConfigError } from '../platform/config.ts';
import { type Service, withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { backOff, poll, rest } from '../platform/poll.ts';
import type { QueueConnection } from './connection.ts';
import type { Redis } from './ioredis.ts';
import { everyShard, markOf } from './lanes.ts';
import {
  allServers,
  isCluster,
  laneServers,
  nameOf,
  pingRedis,
  type RedisClient,
  serverOf,
  whenConnected,
} from './open-redis.ts';

/** The Redis settings that the guarantees rest on; undefined if Redis does not let us read the setting. */
export interface RedisSettings {
  evicts: string | undefined;
  appends: string | undefined;
  syncs: string | undefined;
}

/** The number of shards and the checked cluster node; `node` is undefined without a cluster. */
interface CheckTarget {
  shards: number;
  node: string | undefined;
}

/** Milliseconds that the start waits for a Redis that accepts the connection and does not respond. */
const PATIENCE_MS = 2000;

/**
 * Checks the settings of Redis against what a 2xx response promises: once before the returned promise resolves, and
 * again after each reconnect, because another server may answer then. A server that is unavailable now is checked
 * once it connects.
 *
 * A Redis with an eviction policy ends the process, because it drops accepted objects silently. A Redis that can lose
 * its last writes in a crash is used with a warning, because managed services have guarantees of their own.
 * @throws {ConfigError} if Redis has an eviction policy
 */
export async function requireRedisSettings({ redis, layout }: QueueConnection, log: Log): Promise<void> {
  if (!redis) return;
  if (redis.status !== 'ready') {
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        redis.off('ready', done).off('close', done);
        resolve();
      };
      const timer = setTimeout(done, PATIENCE_MS);
      redis.on('ready', done).on('close', done);
    });
  }
  const checkSettings = (server: Redis) =>
    check(server, { shards: layout.shards, node: isCluster(redis) ? nameOf(server) : undefined }, log);
  const exit = (error: Error) => {
    log.fatal(error.message);
    process.exit(1);
  };
  /** Retries until the settings could be read. After a reconnect, the listener below checks again. */
  const retryCheck = async (server: Redis) => {
    const nextPause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS);
    let read = false;
    while (!read && server.status === 'ready') {
      await rest(nextPause());
      read = await checkSettings(server);
    }
  };
  if (redis.status === 'ready') {
    const servers = allServers(redis);
    const read = await Promise.all(servers.map(checkSettings));
    for (const [index, server] of servers.entries()) if (!read[index]) retryCheck(server).catch(exit);
  }
  whenConnected(redis, (server) => {
    checkSettings(server)
      .then((read) => (read ? undefined : retryCheck(server)))
      .catch(exit);
  });
}

/** Milliseconds before unreadable settings are read again: the first and the longest pause. */
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 30_000;

/** @returns false when the settings could not be read */
async function check(redis: Redis, { shards, node }: CheckTarget, log: Log): Promise<boolean> {
  let settings: RedisSettings;
  let isForAll: boolean;
  try {
    settings = await readRedisSettings(redis);
    isForAll = node !== undefined && shards > 1 && (await refusesForOthers(redis));
  } catch (error) {
    log.warn(
      { err: error, ...(node && { node }) },
      'persistence and eviction settings of Redis could not be read; will retry',
    );
    return false;
  }
  const { evicts, appends, syncs } = settings;
  if (evicts !== undefined && evicts !== 'noeviction') {
    throw new ConfigError(
      `the Redis ${node ? `node ${node}` : 'of REDIS_URL'} has maxmemory-policy ${evicts} and can drop accepted objects; set maxmemory-policy to noeviction`,
    );
  }
  if (evicts === undefined)
    log.warn(
      { ...(node && { node }) },
      'maxmemory-policy of Redis could not be read; it must be noeviction, or Redis can drop accepted objects',
    );
  const crash = crashLossOf(settings);
  if (crash)
    log.warn(
      { appendonly: appends ?? 'unknown', appendfsync: syncs ?? 'unknown', ...(node && { node }) },
      `${crash.loss}; ${crash.advice}`,
    );
  if (isForAll) log.warn({ node }, `${REFUSES_FOR_OTHERS}; set cluster-require-full-coverage no`);
  return true;
}

/** Problem text: with the default settings of a cluster, shards do not fail independently. */
export const REFUSES_FOR_OTHERS =
  'cluster-require-full-coverage is yes: if the primary of one shard is unavailable, this server also stops serving its own slots';

/**
 * Whether a cluster node answers only while every slot is served; false if a managed service does not return the
 * setting.
 */
export async function refusesForOthers(server: Redis): Promise<boolean> {
  return (await configured(server, 'cluster-require-full-coverage')) === 'yes';
}

/**
 * Describes what a crash of a Redis with these settings loses, and what to do.
 * @returns undefined if a crash loses no accepted object
 */
export function crashLossOf({
  appends,
  syncs,
}: Omit<RedisSettings, 'evicts'>): { loss: string; advice: string } | undefined {
  if (appends === 'yes' && syncs === 'always') return undefined;
  const advice = 'set appendonly yes and appendfsync always';
  if (appends === 'no')
    return {
      loss: 'a crash of Redis loses every accepted object that is not applied yet, back to its last snapshot',
      advice,
    };
  if (appends === undefined || syncs === undefined)
    return {
      loss: 'Penstock could not read appendonly and appendfsync of Redis; without appendonly yes and appendfsync always, a crash of Redis loses accepted objects',
      advice: 'check both settings at your provider',
    };
  const span =
    syncs === 'everysec' ? 'of the last one or two seconds' : 'that the system has not written to disk';
  return { loss: `a crash of Redis loses accepted objects ${span}`, advice };
}

/**
 * Reads the settings by CONFIG GET. Managed services often refuse that command but return some of the values in INFO.
 * @throws if the connection to Redis is lost
 */
export async function readRedisSettings(redis: Redis): Promise<RedisSettings> {
  const [evicts, appends, syncs] = await Promise.all(
    ['maxmemory-policy', 'appendonly', 'appendfsync'].map((name) => configured(redis, name)),
  );
  const aof = appends ?? (await readInfo(redis, 'persistence', 'aof_enabled'));
  return {
    evicts: evicts ?? (await readInfo(redis, 'memory', 'maxmemory_policy')),
    appends: aof === '1' ? 'yes' : aof === '0' ? 'no' : aof,
    syncs,
  };
}

async function configured(redis: Redis, name: string): Promise<string | undefined> {
  const answer = await unlessRefused(redis.config('GET', name));
  if (Array.isArray(answer)) return answer[1] as string | undefined;
  return (answer as Record<string, string> | undefined)?.[name];
}

async function readInfo(redis: Redis, section: string, name: string): Promise<string | undefined> {
  const text = await unlessRefused(redis.info(section));
  return text && new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1];
}

/** Resolves to undefined if the server refused the command. */
async function unlessRefused<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (/^(NOPERM|ERR|NOAUTH)/.test((error as Error).message)) return undefined;
    throw error;
  }
}

/** Number of consecutive unanswered checks after which the connection is replaced. */
const PATIENCE = 2;

/**
 * Replaces the connection to Redis when it no longer answers. A connection to a host that vanished poller healthy for
 * 15 minutes and longer. If a Redis hangs, the new connection may reach its successor. Pending commands are sent
 * again or fail, depending on the options of the connection.
 *
 * @param every milliseconds between two checks, and for an answer
 */
export function keepAnswering({ redis, layout }: QueueConnection, every: number, log: Log): Service {
  let unanswered = 0;
  let received = bytesFrom(redis);

  async function answers(): Promise<boolean> {
    // The connection is open, but Redis does not answer the handshake.
    if (redis?.status === 'connect') return false;
    // A connection that is being opened has its own retries.
    if (redis?.status !== 'ready') return true;
    const reads = withTimeout(every, pingRedis(redis, layout.shards));
    return reads.then(
      () => true,
      // A cluster that serves no slot still answers.
      (error: Error) => /CLUSTERDOWN|TRYAGAIN/.test(error.message),
    );
  }

  async function checkConnection(): Promise<void> {
    const answered = await answers();
    // On a slow network, the answer may arrive after many others. A new connection would have to receive all of them
    // again, so received bytes count as an answer.
    const moved = bytesFrom(redis) !== received;
    received = bytesFrom(redis);
    unanswered = answered || moved ? 0 : unanswered + 1;
    if (unanswered < PATIENCE) return;
    unanswered = 0;
    log.error('connection to Redis did not answer; reconnecting');
    redis?.disconnect(true);
  }

  const poller = poll(every, checkConnection);
  return {
    name: 'queue connection watch',
    async stop() {
      // A running check may wait for Redis, so the stop does not wait for it.
      void poller.stop();
    },
  };
}

/** Bytes received from Redis on the current connections. */
function bytesFrom(redis: RedisClient | undefined): number {
  if (!redis) return 0;
  const read = (server: Redis) => (server as unknown as { stream?: Socket }).stream?.bytesRead ?? 0;
  return allServers(redis).reduce((sum, server) => sum + read(server), 0);
}

/** Milliseconds for which a reading counts as current. */
const FRESH_MS = 5000;

const MEMORY_REFRESH_MS = 200;

/** Used and maximum bytes of a server, from its INFO; `most` is 0 without a limit. */
export function memoryOf(info: string): { used: number; most: number } {
  const read = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
  return { used: read('used_memory'), most: read('maxmemory') };
}

/** Reads the memory use of each shard's server five times a second, so that a request can be refused at once. */
export function watchMemory({ redis, layout }: QueueConnection) {
  const shards = everyShard(layout.shards).map(() => ({
    used: 0,
    most: 0,
    seenAt: Number.NEGATIVE_INFINITY,
  }));

  /** Reads each server once, also if it has several shards. */
  async function refresh(of: RedisClient): Promise<void> {
    const servers = new Map<Redis, number[]>();
    for (const shard of everyShard(layout.shards)) {
      const server = serverOf(of, markOf(shard));
      if (server) servers.set(server, [...(servers.get(server) ?? []), shard]);
    }
    const reads = [...servers].map(async ([server, its]) => {
      const { used, most } = memoryOf(await server.info('memory'));
      for (const shard of its)
        shards[shard] =
          most > 0
            ? { used: used / most, most, seenAt: performance.now() }
            : { ...shards[shard]!, used: 0, most: 0 };
    });
    const [failed] = (await Promise.allSettled(reads)).filter((one) => one.status === 'rejected');
    if (failed) throw failed.reason;
  }

  // A missing connection is not handled here, because adds then fail by themselves.
  const poller = poll(MEMORY_REFRESH_MS, async () => {
    if (redis?.status === 'ready') await refresh(redis);
  });
  const service: Service = {
    name: 'queue memory',
    async stop() {
      void poller.stop();
    },
  };
  return {
    ...service,
    /**
     * Percent of maxmemory used by the Redis of a shard, or by the fullest one, at most 200 ms ago; 0 if maxmemory is
     * not set or cannot be read.
     */
    usedPercent: (shard?: number) =>
      100 * (shard === undefined ? Math.max(...shards.map(({ used }) => used)) : shards[shard]!.used),
    /** The maxmemory of a shard's Redis in bytes; 0 if it is not set. */
    maxBytes: (shard: number) => shards[shard]!.most,
    /** Whether the values above are current: each Redis has a maxmemory and has reported it within the last 5 s. */
    isCurrent: () => shards.every(({ seenAt }) => performance.now() - seenAt < FRESH_MS),
  };
}

/** Health of a Redis server, as INFO reports it. */
export interface RedisHealth {
  /** Whether its last writes to disk succeeded. */
  writes: boolean;
  /** Lag of the slowest replica that is online; absent without a replica. */
  lagSeconds?: number;
  lagBytes?: number;
}

/**
 * Reads the health of the servers that have lanes, by the worst of them, and the memory of the fullest.
 * @throws if one does not answer
 */
export async function readHealth(
  redis: RedisClient,
  shards: number,
): Promise<RedisHealth & { used: number; most: number }> {
  const infos = await Promise.all(laneServers(redis, shards).map((server) => server.info()));
  const healths = infos.map(healthOf);
  const fullness = ({ used, most }: { used: number; most: number }) =>
    most > 0 ? used / most : used / 2 ** 53;
  const [fullest] = infos.map(memoryOf).sort((one, other) => fullness(other) - fullness(one));
  const worst = (name: 'lagSeconds' | 'lagBytes') => {
    const lags = healths.map((health) => health[name]).filter((lag) => lag !== undefined);
    return lags.length > 0 && { [name]: Math.max(...lags) };
  };
  return {
    writes: healths.every(({ writes }) => writes),
    ...worst('lagSeconds'),
    ...worst('lagBytes'),
    ...fullest!,
  };
}

/** Parses the health of a server from its INFO. */
export function healthOf(info: string): RedisHealth {
  const read = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
  const failed = ['aof_last_write_status', 'aof_last_bgrewrite_status', 'rdb_last_bgsave_status'].some(
    (name) => (read(name) ?? 'ok') !== 'ok',
  );
  const replicas = [...info.matchAll(/^slave\d+:.*state=online,offset=(\d+),lag=(\d+)/gm)];
  if (replicas.length === 0) return { writes: !failed };
  const offset = Number(read('master_repl_offset') ?? 0);
  return {
    writes: !failed,
    lagSeconds: Math.max(...replicas.map(([, , lag]) => Number(lag))),
    lagBytes: Math.max(...replicas.map(([, replayed]) => Math.max(0, offset - Number(replayed)))),
  };
}
