import type { Writable } from 'node:stream';
import type { QueueAccess } from './bullmq-queues.ts';
import { damagedBy, unseal } from './checksum.ts';
import type { LaneStore } from './lane-store.ts';
import { createLaneStore, type LaneBackend, type LaneQueue } from './lane-store-bullmq.ts';
import { isCluster, type RedisClient } from './open-redis.ts';
import type { WireEnvelope } from './wire.ts';

/** Lanes in Redis, or in a Redis Cluster. */
export function openRedisLanes(access: QueueAccess & { redis: RedisClient }): LaneStore {
  return createLaneStore(access, createRedisBackend(access.redis));
}

/**
 * Reads jobs until their data has the given number of bytes. One command reads many small jobs, and few large ones.
 * BullMQ reads each job with a command of its own, and reads all its fields.
 * KEYS: the jobs; ARGV: bytes
 */
const readJobs = `
  local found, left = {}, tonumber(ARGV[1])
  for place, key in ipairs(KEYS) do
    if left <= 0 then break end
    local job = redis.call('HMGET', key, 'data', 'timestamp')
    found[place] = job
    left = left - #(job[1] or '')
  end
  return found`;

/**
 * Removes waiting jobs under a lease, and returns the ids that are not in the list. The next job of the lane is the
 * last element of the list, so a search from that end finds these jobs at once. BullMQ searches from the other end,
 * through the whole list. If the lease is lost, the script removes no job and returns false.
 * KEYS: the lock, the list, the jobs; ARGV: token, their ids
 */
const completeWaiting = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
  local missing = {}
  for place = 2, #ARGV do
    if redis.call('LREM', KEYS[2], -1, ARGV[place]) == 1 then
      redis.call('UNLINK', KEYS[place + 1])
    else
      missing[#missing + 1] = ARGV[place]
    end
  end
  return missing`;

/**
 * Reads the ids of the first waiting jobs, as one text, if the token holds the lease. The next job of the lane is the last
 * element of the list. A client parses one text much faster than a list of 32,768 ids.
 * KEYS: the lock, the list; ARGV: token, maximum number
 */
const readWindow = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
  return table.concat(redis.call('LRANGE', KEYS[2], -tonumber(ARGV[2]), -1), '\\n')`;

/**
 * Reads a job from each of several equal sections of the list, and the length of its data, without reading the data.
 * The next job of the lane is the last element of the list. The position within a section is random, because even
 * distances would miss workspaces that take turns.
 * KEYS: the list; ARGV: prefix of the lane's keys, maximum number
 */
const sampleJobs = `
  local length, most = redis.call('LLEN', KEYS[1]), tonumber(ARGV[2])
  local found = { length }
  local taken = math.min(length, most)
  for number = 0, taken - 1 do
    local id = redis.call('LINDEX', KEYS[1], -1 - math.floor((number + math.random()) * length / taken))
    found[#found + 1] = id
    found[#found + 1] = redis.call('HSTRLEN', ARGV[1] .. id, 'data')
  end
  return found`;

/**
 * Reads when a job was added, and the server's clock, both in milliseconds.
 * KEYS: the job
 */
const readTimes = `
  local added = redis.call('HGET', KEYS[1], 'timestamp')
  if not added then return false end
  local clock = redis.call('TIME')
  return { added, string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)) }`;

/**
 * Deletes the locks of active jobs, marks the jobs as stalled, and lets the next search for stalled jobs start at
 * once.
 * KEYS: active jobs, stalled jobs, mark of the last check; ARGV: prefix of the lane's keys
 */
const endLease = `
  for _, job in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    redis.call('DEL', ARGV[1] .. job .. ':lock')
    redis.call('SADD', KEYS[2], job)
  end
  return redis.call('DEL', KEYS[3])`;

/**
 * Maximum number of jobs that one command removes. Redis runs no other command during a script, and finding a job
 * costs time in proportion to its position in the list.
 */
const REMOVED_AT_ONCE = 32;

interface Commands {
  completeWaiting(keys: number, ...given: string[]): Promise<string[] | null>;
  readWindow(...given: (string | number)[]): Promise<string | null>;
  sampleJobs(...given: (string | number)[]): Promise<[length: number, ...sampled: (string | number)[]]>;
  readTimes(key: string): Promise<[added: string, now: string] | null>;
  readJobs(keys: number, ...given: (string | number)[]): Promise<[data: string | null, timestamp: string][]>;
  endLease(...given: string[]): Promise<number>;
}

/**
 * Sends the commands of one turn of the event loop in one write, because a write for each command costs more system
 * calls.
 */
async function inOneWrite<Answer>(redis: RedisClient, send: () => Promise<Answer>): Promise<Answer> {
  // A cluster client has one connection per server, and no stream of its own.
  const stream = isCluster(redis) ? undefined : (redis as unknown as { stream?: Writable }).stream;
  stream?.cork();
  const answer = send();
  setImmediate(() => stream?.uncork());
  return answer;
}

/**
 * Number of attempts to read the first jobs of all lanes. A job can leave its lane between the command that finds it
 * and the command that reads it.
 */
const MAX_ATTEMPTS = 5;

function createRedisBackend(client: RedisClient): LaneBackend {
  client.defineCommand('readJobs', { lua: readJobs });
  client.defineCommand('completeWaiting', { lua: completeWaiting });
  client.defineCommand('readTimes', { lua: readTimes, numberOfKeys: 1 });
  client.defineCommand('readWindow', { lua: readWindow, numberOfKeys: 2 });
  client.defineCommand('sampleJobs', { lua: sampleJobs, numberOfKeys: 1 });
  client.defineCommand('endLease', { lua: endLease, numberOfKeys: 3 });
  const redis = client as RedisClient & Commands;
  const lockOf = (queue: LaneQueue, id: string) => `${queue.toKey(id)}:lock`;

  /** Returns the keys of the first waiting job and of the active job of each lane. */
  async function oldestKeys(queues: LaneQueue[]): Promise<string[]> {
    const keys = await Promise.all(
      queues.flatMap((queue) =>
        ['active', 'wait', 'paused'].map(async (list) => {
          const id = await redis.lindex(queue.toKey(list), -1);
          return id === null ? [] : [queue.toKey(id)];
        }),
      ),
    );
    return keys.flat();
  }

  return {
    head: (queue, max) => queue.getRanges(['waiting'], 0, max - 1, true),
    async window(queue, { id, token }, max) {
      const ids = await redis.readWindow(lockOf(queue, id), queue.toKey('wait'), token, max);
      return ids === null ? undefined : ids === '' ? [] : ids.split('\n').reverse();
    },
    async read(queue, ids, bytes) {
      if (ids.length === 0) return [];
      const jobs = await redis.readJobs(ids.length, ...ids.map((id) => queue.toKey(id)), bytes);
      return jobs.map(([data, timestamp], index) =>
        data === null
          ? undefined
          : {
              ...{ id: ids[index]!, data: unseal(data) as WireEnvelope, timestamp: Number(timestamp) },
              characters: data.length,
            },
      );
    },
    async complete(queue, { id, token }, ids) {
      const removed: Promise<string[] | null>[] = [];
      for (let from = 0; from < ids.length; from += REMOVED_AT_ONCE) {
        const some = ids.slice(from, from + REMOVED_AT_ONCE);
        const keys = [lockOf(queue, id), queue.toKey('wait'), ...some.map((one) => queue.toKey(one))];
        removed.push(redis.completeWaiting(keys.length, ...keys, token, ...some));
      }
      const answers = await Promise.all(removed);
      // These jobs no longer exist, or BullMQ keeps them in another list.
      const missing = answers.flatMap((answer) => answer ?? []);
      await inOneWrite(redis, () =>
        Promise.all(missing.map((one) => queue.remove(one, { removeChildren: false }))),
      );
      return !answers.includes(null);
    },
    async sample(queue, max) {
      const [waiting, ...sampled] = await redis.sampleJobs(queue.toKey('wait'), queue.toKey(''), max);
      const envelopes = [];
      for (let index = 0; index < sampled.length; index += 2)
        envelopes.push({ id: String(sampled[index]), bytes: Number(sampled[index + 1]) });
      return { waiting, envelopes };
    },
    async oldest(queue) {
      const [[inWork], [next]] = await Promise.all([
        queue.getRanges(['active'], 0, 0, true),
        queue.getRanges(['waiting'], 0, 0, true),
      ]);
      const id = inWork ?? next;
      if (id === undefined) return undefined;
      const [timestamp, now] = ((await redis.readTimes(queue.toKey(id))) ?? []).map(Number);
      return timestamp === undefined ? undefined : { id, timestamp, age: Math.max(0, now! - timestamp) };
    },
    async endLease(queue) {
      const keys = ['active', 'stalled', 'stalled-check'].map((list) => queue.toKey(list));
      await redis.endLease(...keys, queue.toKey(''));
    },
    async makeReadable(queue) {
      const ids = await redis.lrange(queue.toKey('active'), 0, -1);
      const made: string[] = [];
      for (const id of ids) {
        const [data, opts] = await redis.hmget(queue.toKey(id), 'data', 'opts');
        if (isJson(data) && isJson(opts)) continue;
        const readable = isJson(data) ? data! : JSON.stringify(damagedBy(data!));
        await redis.hset(queue.toKey(id), 'data', readable, 'opts', '{}');
        made.push(id);
      }
      return made;
    },
    /**
     * Reads all lanes in one round trip. With a command for each of some hundred lanes, web would spend a tenth of its
     * processor time on it.
     */
    async countWaiting(queues) {
      const pipeline = redis.pipeline();
      for (const queue of queues) pipeline.llen(queue.toKey('wait'));
      let sum = 0;
      for (const [error, length] of (await pipeline.exec()) ?? []) {
        if (error) throw error;
        sum += Number(length);
      }
      return sum;
    },
    async oldestOf(queues) {
      for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        const keys = await oldestKeys(queues);
        if (keys.length === 0) return undefined;
        const times = await Promise.all(keys.map((key) => redis.hget(key, 'timestamp')));
        // A job has left its lane in the meantime. Its age and the age of the job after it are unknown.
        if (times.every((time) => time !== null)) return Math.min(...times.map(Number));
      }
      throw new Error('the lanes move too fast to be looked at');
    },
  };
}

/** Whether a field is valid JSON. A missing field counts as an empty object. */
function isJson(text: string | null | undefined): boolean {
  try {
    JSON.parse(text || '{}');
    return true;
  } catch {
    return false;
  }
}
