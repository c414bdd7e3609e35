import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../platform/package-root.ts';
import { laneName } from './lanes.ts';
import type { RedisClient } from './open-redis.ts';
import { type Layout, prefixOf, shardOfLane } from './shards.ts';

/** All in one slot of a Redis Cluster, that of the first shard: whose each lane is, of every shard, is decided there. */
const [WORKERS, OWNERS, LATER, VERSION] = ['workers', 'owners', 'later', 'version'].map(
  (name) => `{penstock}:shares:${name}`,
) as [string, string, string, string];

/**
 * What a worker that is gone had in work of a lane is handed out again now, and not when its lock runs out. In a step of
 * its own, since the lane may be on another server than whose it is.
 * KEYS: active jobs, stalled jobs, mark of the last check; ARGV: what the keys of the lane begin with
 */
const handOutAgain = `
  for _, job in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    redis.call('DEL', ARGV[1] .. ':' .. job .. ':lock')
    redis.call('SADD', KEYS[2], job)
  end
  return redis.call('DEL', KEYS[3])`;

/**
 * Gives a lane back that was asked for, or that has come to what this worker does not read.
 * ARGV: lane, id, version of envelopes that it takes, milliseconds for which only workers that read it are asked.
 */
const giveBack = `
  local owner = redis.call('HGET', KEYS[1], ARGV[1])
  local is_left = ARGV[3] ~= '' and owner == ARGV[2]
  if owner ~= '-' .. ARGV[2] and not is_left then return 0 end
  if is_left then
    local clock = redis.call('TIME')
    local ends = tonumber(clock[1]) * 1000 + tonumber(ARGV[4])
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[3] .. ' ' .. string.format('%.0f', ends))
  end
  redis.call('HDEL', KEYS[1], ARGV[1])
  return redis.call('INCR', KEYS[3])`;

interface Commands {
  shareLanes(...given: (string | number)[]): Promise<(string | number)[]>;
  giveLaneBack(...given: (string | number)[]): Promise<number>;
  handOutAgain(...given: string[]): Promise<number>;
}

export interface LaneSharesOptions {
  /** Of the worker, a UUID. */
  id: string;
  /** Of the whole fleet. */
  layout: Layout;
  /** Latest version of envelopes that the worker reads. */
  reads: number;
  /** Milliseconds of silence after which the worker's lanes belong to others. */
  lease: number;
}

/**
 * One worker's part in sharing the lanes out among those that are alive, kept in Redis. Who has which lane is for speed
 * and for the number of connections. Two workers of one lane are as safe as one: the queue hands out one job of a lane
 * at a time, and the ledger knows what has taken effect.
 */
export function createLaneShares(redis: RedisClient, { id, layout, reads, lease }: LaneSharesOptions) {
  const lua = readFileSync(join(packageRoot, 'src/queue/share-lanes.lua'), 'utf8');
  redis.defineCommand('shareLanes', { numberOfKeys: 4, lua });
  redis.defineCommand('giveLaneBack', { numberOfKeys: 3, lua: giveBack });
  redis.defineCommand('handOutAgain', { numberOfKeys: 3, lua: handOutAgain });
  const commands = redis as unknown as Commands;
  let version = '';
  let own: number[] = [];

  /** Where this fails, the lock runs out: it is for speed alone. */
  async function release(lane: number): Promise<void> {
    const queue = `${prefixOf(shardOfLane(layout, lane))}:${laneName(lane)}`;
    const keys = ['active', 'stalled', 'stalled-check'].map((list) => `${queue}:${list}`);
    await commands.handOutAgain(...keys, queue).catch(() => {});
  }

  return {
    /**
     * Says that the worker is there, and takes or gives lanes up to its share.
     *
     * @param open lanes that it works at present, or is closing: no others wait to be closed when they are to go
     * @param leaves from the first time on it has no lane any more, and keeps what it has not closed yet from others
     * @returns the lanes that it is to work, in order; an open one that is missing is to be closed, and given back then
     */
    async beat(open: number[], leaves = false): Promise<number[]> {
      const [found, ...told] = await commands.shareLanes(
        ...[WORKERS, OWNERS, LATER, VERSION],
        ...[id, lease, layout.shards * layout.lanes, version, reads, leaves ? 'leaves' : ''],
        [',', ...open.map((lane) => `${lane},`)].join(''),
      );
      if (found === undefined) return own;
      version = String(found);
      // Not before they are known to be its own.
      for (const lane of told) if (String(lane).startsWith('-')) void release(Number(String(lane).slice(1)));
      own = told.map((lane) => Number(String(lane).replace('-', '')));
      return own;
    },

    /** A lane is closed here, and anybody's who has room for it. One that is somebody else's by now stays theirs. */
    async giveBack(lane: number): Promise<void> {
      await commands.giveLaneBack(OWNERS, LATER, VERSION, lane, id, '', 0);
    },

    /** The same of a lane that comes to an envelope of this version: for so long only who reads it is asked. */
    async leaveToLater(lane: number, needed: number, milliseconds: number): Promise<void> {
      await commands.giveLaneBack(OWNERS, LATER, VERSION, lane, id, needed, milliseconds);
    },

    /** The worker is gone; what it has not given back is taken as that of one that was killed. */
    async end(): Promise<void> {
      await redis.multi().zrem(WORKERS, id, `-${id}`).incr(VERSION).exec();
    },
  };
}

export type LaneShares = ReturnType<typeof createLaneShares>;
