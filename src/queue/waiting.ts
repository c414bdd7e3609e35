import type { Writable } from 'node:stream';
import type { Queue } from 'bullmq';
import type { Pool } from 'pg';
import type { QueueConnection } from './connection.ts';
import { isCluster, type RedisClient } from './open-redis.ts';

/** A job that waits in a queue. */
export interface WaitingJob<Data> {
  id: string;
  data: Data;
  /** When it was added, in epoch milliseconds. */
  timestamp: number;
  /** Characters of the text that `data` was read from, where there was one. */
  characters?: number;
}

/** A job as it was handed out to a worker: the token of its lock says to whom. */
export interface HeldJob {
  id: string;
  token: string;
}

/** Looks at what waits in one queue, in the order in which it is handed out. */
export interface WaitingJobs<Data> {
  /** Ids of the first so many jobs. */
  ids(most: number): Promise<string[]>;
  /**
   * Ids of the first so many, of all that comes behind a job in work. Undefined when the job is not held by that worker
   * any more. Another may have been handed it since, and the one behind it, which then waits no longer: what waits has a
   * gap in front that only the queue can see.
   */
  idsBehind(held: HeldJob, most: number): Promise<string[] | undefined>;
  /**
   * These jobs, each in its place; one that is gone is undefined.
   * @param bytes of data that are enough: jobs behind those are left out; absent: all of them
   */
  jobs(ids: string[], bytes?: number): Promise<(WaitingJob<Data> | undefined)[]>;
  /** Takes these jobs away, as far as they still wait. */
  remove(ids: string[]): Promise<void>;
  /** The one in work, else the first that waits, without its data: that may be 4 MB, and whoever looks does so often. */
  oldest(): Promise<OldestJob | undefined>;
}

/** The first job of a queue. */
export interface OldestJob extends Omit<WaitingJob<unknown>, 'data' | 'characters'> {
  /** Milliseconds since it was added, by the clock of the server that holds it. */
  age: number;
}

/**
 * BullMQ's Postgres backend gives the last of the waiting jobs where the first are asked for, unless all are, and a job
 * at a time. `get_range` counts from the newest, `getRanges` turns that around. So Postgres is asked here.
 */
export function waitingIn<Data>(connection: QueueConnection, queue: Queue<Data>): WaitingJobs<Data> {
  return connection.kind === 'postgres'
    ? ofPostgres<Data>(connection, queue.name)
    : ofRedis(connection.redis!, queue);
}

/**
 * Reads jobs until their data is as much as is wanted: many small ones are one command, and of large ones no more than
 * that comes over. BullMQ gives one job a command, with all that it knows of it.
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
 * Removes jobs that wait, and tells which of them did not. The first that is handed out is the last of the list. From
 * there they are found at once, while BullMQ looks for each from the other end, through all that waits.
 * KEYS: the list, the jobs; ARGV: their ids
 */
const removeWaiting = `
  local missing = {}
  for place, id in ipairs(ARGV) do
    if redis.call('LREM', KEYS[1], -1, id) == 1 then
      redis.call('UNLINK', KEYS[place + 1])
    else
      missing[#missing + 1] = id
    end
  end
  return missing`;

/**
 * The first of what waits, as long as a job is in work under this token. The first that is handed out is the last of
 * the list.
 * KEYS: the lock, the list; ARGV: token, how many
 */
const readBehind = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
  return redis.call('LRANGE', KEYS[2], -tonumber(ARGV[2]), -1)`;

/**
 * When a job was added and the server's clock, in milliseconds.
 * KEYS: the job
 */
const readTimes = `
  local added = redis.call('HGET', KEYS[1], 'timestamp')
  if not added then return false end
  local clock = redis.call('TIME')
  return { added, string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)) }`;

/** Jobs that one command removes: Redis does nothing else meanwhile. */
const REMOVED_AT_ONCE = 256;

interface Commands {
  removeWaiting(keys: number, ...given: string[]): Promise<string[]>;
  readBehind(...given: (string | number)[]): Promise<string[] | null>;
  readTimes(key: string): Promise<[added: string, now: string] | null>;
  readJobs(keys: number, ...given: (string | number)[]): Promise<[data: string | null, timestamp: string][]>;
}

/** What is sent before the next turn of the event loop leaves in one write: a call of the system for each costs more. */
async function inOneWrite<Answer>(redis: RedisClient, send: () => Promise<Answer>): Promise<Answer> {
  // The client of a cluster has a connection to each of its servers.
  const stream = isCluster(redis) ? undefined : (redis as unknown as { stream?: Writable }).stream;
  stream?.cork();
  const answer = send();
  setImmediate(() => stream?.uncork());
  return answer;
}

function ofRedis<Data>(client: RedisClient, queue: Queue<Data>): WaitingJobs<Data> {
  client.defineCommand('readJobs', { lua: readJobs });
  client.defineCommand('removeWaiting', { lua: removeWaiting });
  client.defineCommand('readTimes', { lua: readTimes, numberOfKeys: 1 });
  client.defineCommand('readBehind', { lua: readBehind, numberOfKeys: 2 });
  const redis = client as RedisClient & Commands;
  return {
    ids: (most) => queue.getRanges(['waiting'], 0, most - 1, true),
    async idsBehind({ id, token }, most) {
      const keys = [`${queue.toKey(id)}:lock`, queue.toKey('wait')];
      return (await redis.readBehind(...keys, token, most))?.reverse();
    },
    async jobs(ids, bytes = Number.MAX_SAFE_INTEGER) {
      if (ids.length === 0) return [];
      const found = await redis.readJobs(ids.length, ...ids.map((id) => queue.toKey(id)), bytes);
      return found.map(([data, timestamp], place) =>
        data === null
          ? undefined
          : {
              ...{ id: ids[place]!, data: JSON.parse(data) as Data, timestamp: Number(timestamp) },
              characters: data.length,
            },
      );
    },
    async remove(ids) {
      const removed: Promise<string[]>[] = [];
      for (let from = 0; from < ids.length; from += REMOVED_AT_ONCE) {
        const some = ids.slice(from, from + REMOVED_AT_ONCE);
        const keys = [queue.toKey('wait'), ...some.map((id) => queue.toKey(id))];
        removed.push(redis.removeWaiting(keys.length, ...keys, ...some));
      }
      const missing = (await Promise.all(removed)).flat();
      // Gone, or in some other place that BullMQ knows.
      await inOneWrite(redis, () =>
        Promise.all(missing.map((id) => queue.remove(id, { removeChildren: false }))),
      );
    },
    async oldest() {
      const [[inWork], [next]] = await Promise.all([
        queue.getRanges(['active'], 0, 0, true),
        queue.getRanges(['waiting'], 0, 0, true),
      ]);
      const id = inWork ?? next;
      if (id === undefined) return undefined;
      const [timestamp, now] = ((await redis.readTimes(queue.toKey(id))) ?? []).map(Number);
      return timestamp === undefined ? undefined : { id, timestamp, age: Math.max(0, now! - timestamp) };
    },
  };
}

/** As `move_to_active` chooses, by the index that it uses. */
const selectIds = `
  select id from job where queue = $1 and state = 'waiting' order by priority, seq limit $2`;

/**
 * The same behind a job in work, in one look. Of one that is held by somebody else, or by nobody, there is no row.
 */
const selectBehind = `
  select array(${selectIds}) as ids
  from job held
  where held.queue = $1 and held.id = $3 and held.state = 'active' and held.lock_token = $4`;

/**
 * By primary key. Data is measured as it is stored. How much that is which is compressed is only known when it is
 * unpacked, so that a job of it counts as $4 bytes at least.
 */
const selectJobs = `
  select sized.id, sized.data, sized.timestamp
  from (
    select
      given.place, job.id, job.data, job.added_at_ms::float8 as timestamp,
      sum(case
        when pg_column_compression(job.data) is null then pg_column_size(job.data)
        else greatest(pg_column_size(job.data), $4::float8)
      end) over (order by given.place rows between unbounded preceding and 1 preceding) as before
    from unnest($2::text[]) with ordinality as given (id, place)
    left join job on job.queue = $1 and job.id = given.id
  ) as sized
  where coalesce(sized.before, 0) < $3::float8
  order by sized.place`;

/** 4 MB, more than which an envelope has seldom, by as many as were read at once before their sizes were asked for. */
const COMPRESSED_BYTES = 131_072;

/** BullMQ's own function, which leaves a job alone that somebody holds. */
const removeJobs = `
  select remove($1, ids.id, false) from unnest($2::text[]) as ids (id)`;

/** One lane has one job in work at a time. */
const oldestColumns = `
  id, added_at_ms::float8 as timestamp,
  greatest(0, extract(epoch from clock_timestamp())::float8 * 1000 - added_at_ms) as age`;

const selectOldest = `
  (select ${oldestColumns} from job where queue = $1 and state = 'active' limit 1)
  union all
  (select ${oldestColumns} from job
    where queue = $1 and state = 'waiting' order by priority, seq limit 1)`;

function ofPostgres<Data>({ options }: QueueConnection, queueName: string): WaitingJobs<Data> {
  const pool = options.connection as unknown as Pool;
  return {
    async ids(most) {
      const { rows } = await pool.query<{ id: string }>(selectIds, [queueName, most]);
      return rows.map(({ id }) => id);
    },
    async idsBehind({ id, token }, most) {
      const { rows } = await pool.query<{ ids: string[] }>(selectBehind, [queueName, most, id, token]);
      return rows[0]?.ids;
    },
    async jobs(ids, bytes = Number.MAX_SAFE_INTEGER) {
      const { rows } = await pool.query<WaitingJob<Data> | { id: null }>(selectJobs, [
        ...[queueName, ids, bytes, COMPRESSED_BYTES],
      ]);
      return rows.map((row) => (row.id === null ? undefined : row));
    },
    async remove(ids) {
      await pool.query(removeJobs, [queueName, ids]);
    },
    async oldest() {
      const { rows } = await pool.query<OldestJob>(selectOldest, [queueName]);
      return rows[0];
    },
  };
}
