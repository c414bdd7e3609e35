import { withTimeout } from '../platform/lifecycle.ts';
import { prefixOf } from './lanes.ts';
import type { RedisClient } from './open-redis.ts';

/**
 * Milliseconds for which a producer may add to a shard without reading the shard's moves again. A process that moves
 * a workspace waits this long before it reads the shard's lanes, so that every producer knows of the move by then.
 */
export const KNOWN_MS = 300;

/** Maximum milliseconds for which requests of a workspace are held while it moves. */
export const HOLD_MS = 900;

/** A running or completed move of a workspace from a shard. */
export interface Move {
  to: number;
  /** Sequence number among the workspace's moves. The highest number is the latest move. */
  number: number;
  /** Deadline in epoch milliseconds, by the clock of the shard's Redis; absent after the move is completed. */
  until?: number;
}

/**
 * Keys in the slot of the shard that a workspace leaves: a hash of moves by workspace, and a version that grows with
 * each change.
 */
const keysOf = (shard: number): [string, string] => [
  `${prefixOf(shard)}:moves`,
  `${prefixOf(shard)}:moves-version`,
];

export const movesVersionOf = (shard: number): string => keysOf(shard)[1];

const clock = `
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)`;

/** KEYS: moves, version; ARGV: known version. Returns version, time, and the moves if the version has changed. */
const read = `${clock}
  local version = redis.call('GET', KEYS[2]) or '0'
  if version == ARGV[1] then return { version, now } end
  return { version, now, redis.call('HGETALL', KEYS[1]) }`;

/**
 * Starts a move. ARGV: workspace, to, number, milliseconds of the hold. Returns 0 while another move of the workspace
 * is running.
 */
const begin = `${clock}
  local there = redis.call('HGET', KEYS[1], ARGV[1])
  local before = there and cjson.decode(there)
  if before and before['until'] and before['until'] > now and before.number ~= tonumber(ARGV[3]) then return 0 end
  local move = { to = tonumber(ARGV[2]), number = tonumber(ARGV[3]), ['until'] = now + tonumber(ARGV[4]) }
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(move))
  return redis.call('INCR', KEYS[2])`;

/** Completes a move. ARGV: workspace, number. Returns 0 if the deadline has passed. */
const end = `${clock}
  local there = redis.call('HGET', KEYS[1], ARGV[1])
  local move = there and cjson.decode(there)
  if not move or move.number ~= tonumber(ARGV[2]) or not move['until'] or move['until'] <= now then return 0 end
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({ to = move.to, number = move.number }))
  return redis.call('INCR', KEYS[2])`;

/** Cancels a move; the workspace stays in its shard. ARGV: workspace, number. */
const giveUp = `
  local there = redis.call('HGET', KEYS[1], ARGV[1])
  local move = there and cjson.decode(there)
  if not move or move.number ~= tonumber(ARGV[2]) or not move['until'] then return 0 end
  redis.call('HDEL', KEYS[1], ARGV[1])
  return redis.call('INCR', KEYS[2])`;

type Argument = string | number;

interface Commands {
  readMoves(...given: Argument[]): Promise<[string, number, string[]?]>;
  beginMove(...given: Argument[]): Promise<number>;
  endMove(...given: Argument[]): Promise<number>;
  giveUpMove(...given: Argument[]): Promise<number>;
}

/** Reads and changes the moves from each shard in Redis, atomically with adds to the shard's lanes. */
export function openMoves(redis: RedisClient, timeout: number) {
  const scripts = { readMoves: read, beginMove: begin, endMove: end, giveUpMove: giveUp };
  for (const [name, lua] of Object.entries(scripts)) redis.defineCommand(name, { numberOfKeys: 2, lua });
  const commands = redis as unknown as Commands;

  return {
    /**
     * Reads the moves from a shard.
     * @param knownVersion the version that the caller has
     * @returns `moves` is undefined if that version is current
     * @throws if the shard does not answer
     */
    async read(shard: number, knownVersion: string) {
      const [version, now, fields] = await withTimeout(
        timeout,
        commands.readMoves(...keysOf(shard), knownVersion),
      );
      return { version, now, moves: fields && movesIn(fields) };
    },
    /**
     * Starts a move: producers hold the workspace's requests as soon as they have read it.
     * @returns false if another move of it is running
     */
    async begin(shard: number, workspaceId: string, { to, number }: Move): Promise<boolean> {
      const given = [workspaceId, to, number, HOLD_MS] as const;
      return (await withTimeout(timeout, commands.beginMove(...keysOf(shard), ...given))) > 0;
    },
    /** @returns whether the move is completed; otherwise the workspace stays, and is no longer held */
    async end(shard: number, workspaceId: string, number: number): Promise<boolean> {
      return (await withTimeout(timeout, commands.endMove(...keysOf(shard), workspaceId, number))) > 0;
    },
    async giveUp(shard: number, workspaceId: string, number: number): Promise<void> {
      await withTimeout(timeout, commands.giveUpMove(...keysOf(shard), workspaceId, number));
    },
  };
}

export type Moves = ReturnType<typeof openMoves>;

/** Parses the reply of HGETALL. */
function movesIn(fields: string[]): Map<string, Move> {
  const moves = new Map<string, Move>();
  for (let at = 0; at < fields.length; at += 2) moves.set(fields[at]!, JSON.parse(fields[at + 1]!) as Move);
  return moves;
}
