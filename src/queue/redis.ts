import type { Socket } from 'node:net';
import { ConfigError } from '../platform/config.ts';
import { type Service, within } from '../platform/lifecycle.ts';
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

/** The settings of a Redis that our promises rest on; undefined: it does not let us read this one. */
interface RedisSettings {
  evicts: string | undefined;
  appends: string | undefined;
  syncs: string | undefined;
}

/** How many shards there are, and which server of a cluster is looked at; undefined: it is no cluster. */
interface Looked {
  shards: number;
  node: string | undefined;
}

/** Milliseconds that a start waits for a Redis that takes the connection and says nothing. */
const PATIENCE_MS = 2000;

/**
 * Holds the Redis of `connection` against what a 2xx promises: once before it resolves, and again whenever the
 * connection comes back, since another server may answer then. One that is away now is looked at when it comes.
 *
 * A Redis that evicts ends the process: it throws accepted objects away without a word. One that can lose its
 * last writes in a crash is warned about and used, since managed services have promises of their own.
 * @throws {ConfigError} when it evicts
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
  const look = (server: Redis) =>
    check(server, { shards: layout.shards, node: isCluster(redis) ? nameOf(server) : undefined }, log);
  const exit = (error: Error) => {
    log.fatal(error.message);
    process.exit(1);
  };
  /** Looks until the settings could be read. After a new connection, the listener below looks anew. */
  const lookAgain = async (server: Redis) => {
    const nextPause = backOff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
    let read = false;
    while (!read && server.status === 'ready') {
      await rest(nextPause());
      read = await look(server);
    }
  };
  if (redis.status === 'ready') {
    const servers = allServers(redis);
    const read = await Promise.all(servers.map(look));
    for (const [index, server] of servers.entries()) if (!read[index]) lookAgain(server).catch(exit);
  }
  whenConnected(redis, (server) => {
    look(server)
      .then((read) => (read ? undefined : lookAgain(server)))
      .catch(exit);
  });
}

/** Milliseconds before settings that could not be read are read again, and at most. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;

/** @returns false when the settings could not be read */
async function check(redis: Redis, { shards, node }: Looked, log: Log): Promise<boolean> {
  let found: RedisSettings;
  let isForAll: boolean;
  try {
    found = await readRedisSettings(redis);
    isForAll = node !== undefined && shards > 1 && (await refusesForOthers(redis));
  } catch (error) {
    log.warn({ err: error, ...(node && { node }) }, 'settings of Redis could not be read; will retry');
    return false;
  }
  const { evicts, appends, syncs } = found;
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
  if (appends !== 'yes' || syncs !== 'always')
    log.warn(
      { appendonly: appends ?? 'unknown', appendfsync: syncs ?? 'unknown', ...(node && { node }) },
      whatACrashLoses(found),
    );
  if (isForAll) log.warn({ node }, `${REFUSES_FOR_OTHERS}; set cluster-require-full-coverage no`);
  return true;
}

/** What shards are for, and a server of a cluster does not give unless told. */
export const REFUSES_FOR_OTHERS =
  'cluster-require-full-coverage is yes: if the primary of one shard is unavailable, this server also stops serving its own slots';

/** Whether a server of a cluster answers only while every slot is served; false where a managed service does not tell. */
export async function refusesForOthers(server: Redis): Promise<boolean> {
  return (await configured(server, 'cluster-require-full-coverage')) === 'yes';
}

/** What is lost in a crash of a Redis with these settings, and what to set. */
export function whatACrashLoses({ appends, syncs }: RedisSettings): string {
  const advice = 'set appendonly yes and appendfsync always';
  if (appends === 'no')
    return `a crash of Redis loses every accepted object that is not applied yet, back to its last snapshot; ${advice}`;
  if (appends === undefined || syncs === undefined)
    return `the persistence settings of Redis could not be read; without appendonly yes and appendfsync always, a crash of Redis loses accepted objects`;
  const span =
    syncs === 'everysec' ? 'of the last one or two seconds' : 'that the system has not written to disk';
  return `a crash of Redis loses accepted objects ${span}; ${advice}`;
}

/**
 * By CONFIG GET; managed services often refuse it, and tell some of it in INFO.
 * @throws when Redis goes away meanwhile
 */
export async function readRedisSettings(redis: Redis): Promise<RedisSettings> {
  const [evicts, appends, syncs] = await Promise.all(
    ['maxmemory-policy', 'appendonly', 'appendfsync'].map((name) => configured(redis, name)),
  );
  const aof = appends ?? (await told(redis, 'persistence', 'aof_enabled'));
  return {
    evicts: evicts ?? (await told(redis, 'memory', 'maxmemory_policy')),
    appends: aof === '1' ? 'yes' : aof === '0' ? 'no' : aof,
    syncs,
  };
}

async function configured(redis: Redis, name: string): Promise<string | undefined> {
  const answer = await unlessRefused(redis.config('GET', name));
  if (Array.isArray(answer)) return answer[1] as string | undefined;
  return (answer as Record<string, string> | undefined)?.[name];
}

async function told(redis: Redis, section: string, name: string): Promise<string | undefined> {
  const text = await unlessRefused(redis.info(section));
  return text && new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1];
}

/** Undefined: the server answered, and said that this command is not for us. */
async function unlessRefused<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (/^(NOPERM|ERR|NOAUTH)/.test((error as Error).message)) return undefined;
    throw error;
  }
}

/** Looks without an answer after which a connection is made anew. */
const PATIENCE = 2;

/**
 * Makes the connection to Redis anew when it does not answer any more. A host that vanishes leaves connections that
 * look sound for a quarter of an hour and longer; one to a Redis that hangs may find its successor. What was asked
 * and not answered is asked again, or fails, as the connection has it.
 *
 * @param every milliseconds between two looks, and for an answer
 */
export function keepAnswering({ redis, layout }: QueueConnection, every: number, log: Log): Service {
  let unanswered = 0;
  let heard = bytesFrom(redis);

  async function answers(): Promise<boolean> {
    // Connected, and kept from being ready by a Redis that does not say who it is.
    if (redis?.status === 'connect') return false;
    // One that is being made takes care of itself.
    if (redis?.status !== 'ready') return true;
    const asked = within(every, pingRedis(redis, layout.shards));
    return asked.then(
      () => true,
      // That of a cluster which serves no slot is an answer, too.
      (error: Error) => /CLUSTERDOWN|TRYAGAIN/.test(error.message),
    );
  }

  async function look(): Promise<void> {
    const answered = await answers();
    // Over a slow network the answer may come behind many others: to begin again would be to begin them again.
    const moved = bytesFrom(redis) !== heard;
    heard = bytesFrom(redis);
    unanswered = answered || moved ? 0 : unanswered + 1;
    if (unanswered < PATIENCE) return;
    unanswered = 0;
    log.error('connection to Redis did not answer; reconnecting');
    redis?.disconnect(true);
  }

  const looks = poll(every, look);
  return {
    name: 'queue connection watch',
    async stop() {
      // A look may wait for Redis.
      void looks.stop();
    },
  };
}

/** What has come from Redis on the present connection. */
function bytesFrom(redis: RedisClient | undefined): number {
  if (!redis) return 0;
  const read = (server: Redis) => (server as unknown as { stream?: Socket }).stream?.bytesRead ?? 0;
  return allServers(redis).reduce((sum, server) => sum + read(server), 0);
}

/** Milliseconds for which a look counts as a look at what is. */
const FRESH_MS = 5000;

const MEMORY_REFRESH_MS = 200;

/** Bytes that a server uses and may use, by its INFO; `most` is 0 where that has no bound. */
export function memoryOf(info: string): { used: number; most: number } {
  const read = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
  return { used: read('used_memory'), most: read('maxmemory') };
}

/** How full the server of each shard is: asked for five times a second, so that a request can be refused at once. */
export function watchMemory({ redis, layout }: QueueConnection) {
  const shards = everyShard(layout.shards).map(() => ({
    used: 0,
    most: 0,
    seenAt: Number.NEGATIVE_INFINITY,
  }));

  /** Shards of one server are told by one question. */
  async function look(of: RedisClient): Promise<void> {
    const servers = new Map<Redis, number[]>();
    for (const shard of everyShard(layout.shards)) {
      const server = serverOf(of, markOf(shard));
      if (server) servers.set(server, [...(servers.get(server) ?? []), shard]);
    }
    const asked = [...servers].map(async ([server, its]) => {
      const { used, most } = memoryOf(await server.info('memory'));
      for (const shard of its)
        shards[shard] =
          most > 0
            ? { used: used / most, most, seenAt: performance.now() }
            : { ...shards[shard]!, used: 0, most: 0 };
    });
    const [failed] = (await Promise.allSettled(asked)).filter((one) => one.status === 'rejected');
    if (failed) throw failed.reason;
  }

  // While Redis is away, or does not tell, adding fails by itself.
  const looks = poll(MEMORY_REFRESH_MS, async () => {
    if (redis?.status === 'ready') await look(redis);
  });
  const service: Service = {
    name: 'queue memory',
    async stop() {
      void looks.stop();
    },
  };
  return {
    ...service,
    /**
     * Percent of its maxmemory that the Redis of a shard has used, or the fullest of all, at most 200 ms ago. It is 0
     * where there is no maxmemory, or the Redis does not tell.
     */
    usedPercent: (shard?: number) =>
      100 * (shard === undefined ? Math.max(...shards.map(({ used }) => used)) : shards[shard]!.used),
    /** Bytes of the maxmemory of a shard's Redis; 0 where there is none. */
    mostBytes: (shard: number) => shards[shard]!.most,
    /** Whether that is known: each Redis has a maxmemory, and has told it a moment ago. */
    known: () => shards.every(({ seenAt }) => performance.now() - seenAt < FRESH_MS),
  };
}

/** How Redis says it is. */
export interface RedisHealth {
  /** Whether its last writes to disk went well. */
  writes: boolean;
  /** Of the slowest replica that is online; absent: there is none. */
  lagSeconds?: number;
  lagBytes?: number;
}

/** How the servers are that have lanes, by the worst of them, and the memory of the fullest. @throws when one is away */
export async function readHealth(
  redis: RedisClient,
  shards: number,
): Promise<RedisHealth & { used: number; most: number }> {
  const told = await Promise.all(laneServers(redis, shards).map((server) => server.info()));
  const healths = told.map(healthOf);
  const fullness = ({ used, most }: { used: number; most: number }) =>
    most > 0 ? used / most : used / 2 ** 53;
  const [fullest] = told.map(memoryOf).sort((one, other) => fullness(other) - fullness(one));
  const worst = (name: 'lagSeconds' | 'lagBytes') => {
    const known = healths.map((health) => health[name]).filter((lag) => lag !== undefined);
    return known.length > 0 && { [name]: Math.max(...known) };
  };
  return {
    writes: healths.every(({ writes }) => writes),
    ...worst('lagSeconds'),
    ...worst('lagBytes'),
    ...fullest!,
  };
}

/** Of what INFO says. */
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
