import { validate as isUuid } from 'uuid';
import type { Redis } from './ioredis.ts';
import { type Layout, prefixOf } from './lanes.ts';
import { type RedisClient, serverOfShard } from './open-redis.ts';

/** Keys per command, and the maximum number of keys per search. */
const KEYS_AT_ONCE = 1000;
const MAX_KEYS = 200_000;

/** Lists and sets in which BullMQ keeps the ids of the jobs of a queue. */
const LISTS = ['wait', 'paused', 'active'];
const SORTED = ['completed', 'failed', 'delayed', 'prioritized', 'waiting-children'];

/** The key of a job: the queue and the id. */
const JOB = /^(.*:lane-\d+):([^:]+)$/;

/**
 * Finds jobs in Redis that are in no list of their lane. Such a job is never handed to a worker. It is the result of
 * damage: Redis adds or removes a job and its list entry in one step.
 *
 * @returns keys of the jobs
 */
export async function findStrayJobs(
  redis: RedisClient,
  { shards }: Pick<Layout, 'shards'>,
): Promise<string[]> {
  const strays: string[] = [];
  for (let shard = 0; shard < shards; shard++) {
    const server = serverOfShard(redis, shard);
    const suspects = await withoutReference(server, await readJobKeys(server, shard));
    // A job may have moved from one list to another between two commands.
    strays.push(...(await withoutReference(server, suspects)));
  }
  return strays;
}

async function readJobKeys(server: Redis, shard: number): Promise<string[]> {
  const keys: string[] = [];
  let cursor = '0';
  let seen = 0;
  do {
    const [next, some] = await server.scan(
      cursor,
      'MATCH',
      `${prefixOf(shard)}:lane-*`,
      'COUNT',
      KEYS_AT_ONCE,
    );
    cursor = next;
    seen += some.length;
    keys.push(...some.filter(isJob));
  } while (cursor !== '0' && seen < MAX_KEYS);
  return keys;
}

/** Filters the jobs that exist and are in no list. */
async function withoutReference(server: Redis, keys: string[]): Promise<string[]> {
  if (keys.length === 0) return [];
  const queues = new Set(keys.map((key) => JOB.exec(key)![1]!));
  const referenced = new Set<string>();
  for (const queue of queues) {
    const idLists = await Promise.all([
      ...LISTS.map((list) => server.lrange(`${queue}:${list}`, 0, -1)),
      server.smembers(`${queue}:stalled`),
      ...SORTED.map((set) => server.zrange(`${queue}:${set}`, '0', '-1')),
    ]);
    for (const id of idLists.flat()) referenced.add(`${queue}:${id}`);
  }
  const missing = keys.filter((key) => !referenced.has(key));
  const exist = await Promise.all(missing.map((key) => server.exists(key)));
  return missing.filter((_, index) => exist[index] === 1);
}

function isJob(key: string): boolean {
  return isUuid(JOB.exec(key)?.[2]);
}
