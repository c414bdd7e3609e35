import { within } from '../platform/lifecycle.ts';
import { prefixOf } from './lanes.ts';
import type { RedisClient } from './open-redis.ts';

/**
 * Milliseconds for which a producer may add to a shard without having asked who moves from there. Whoever moves a
 * workspace waits for as long before it looks what waits: from then on nobody adds who does not know.
 */
export const KNOWN_MS = 300;

/** Milliseconds for which requests of a workspace may be held while it moves. */
export const HOLD_MS = 900;

/** A workspace that leaves a shard, or has left it. */
export interface Move {
  to: number;
  /** Its how many-th move: a later one says more. */
  number: number;
  /** Epoch milliseconds by the Redis of the shard until when it is under way; absent: it has taken place. */
  until?: number;
}

/** Both in the slot of the shard that is left: hash of moves by workspace, and a number that grows with each change. */
const keysOf = (shard: number): [string, string] => [
  `${prefixOf(shard)}:moves`,
  `${prefixOf(shard)}:moves-version`,
];

export const movesVersionOf = (shard: number): string => keysOf(shard)[1];

const clock = `
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)`;

/** KEYS: moves, version; ARGV: version that is known. Returns version, time, and the moves where they are others. */
const read = `${clock}
  local version = redis.call('GET', KEYS[2]) or '0'
  if version == ARGV[1] then return { version, now } end
  return { version, now, redis.call('HGETALL', KEYS[1]) }`;

/** ARGV: workspace, to, number, milliseconds of the hold. Returns 0 while another move of it is under way. */
const begin = `${clock}
  local there = redis.call('HGET', KEYS[1], ARGV[1])
  local before = there and cjson.decode(there)
  if before and before['until'] and before['until'] > now and before.number ~= tonumber(ARGV[3]) then return 0 end
  local move = { to = tonumber(ARGV[2]), number = tonumber(ARGV[3]), ['until'] = now + tonumber(ARGV[4]) }
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(move))
  return redis.call('INCR', KEYS[2])`;

/** ARGV: workspace, number. The moment at which it has moved. Returns 0 when its time was over. */
const end = `${clock}
  local there = redis.call('HGET', KEYS[1], ARGV[1])
  local move = there and cjson.decode(there)
  if not move or move.number ~= tonumber(ARGV[2]) or not move['until'] or move['until'] <= now then return 0 end
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({ to = move.to, number = move.number }))
  return redis.call('INCR', KEYS[2])`;

/** ARGV: workspace, number. It stays where it was. */
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

/** The moves from each shard, as Redis has them: atomic with what is added to the shard's lanes. */
export function openMoves(redis: RedisClient, timeout: number) {
  const scripts = { readMoves: read, beginMove: begin, endMove: end, giveUpMove: giveUp };
  for (const [name, lua] of Object.entries(scripts)) redis.defineCommand(name, { numberOfKeys: 2, lua });
  const commands = redis as unknown as Commands;

  return {
    /**
     * @param known version whose moves are known
     * @returns `moves` undefined: they are those of that version
     * @throws when the shard does not answer
     */
    async read(shard: number, known: string) {
      const [version, now, told] = await within(timeout, commands.readMoves(...keysOf(shard), known));
      return { version, now, moves: told && movesIn(told) };
    },
    /** Has a workspace held by all producers of its shard, those that know of it at once. @returns false: another moves it */
    async begin(shard: number, workspaceId: string, { to, number }: Move): Promise<boolean> {
      const given = [workspaceId, to, number, HOLD_MS] as const;
      return (await within(timeout, commands.beginMove(...keysOf(shard), ...given))) > 0;
    },
    /** @returns whether it has moved; else it stays, and is held no longer */
    async end(shard: number, workspaceId: string, number: number): Promise<boolean> {
      return (await within(timeout, commands.endMove(...keysOf(shard), workspaceId, number))) > 0;
    },
    async giveUp(shard: number, workspaceId: string, number: number): Promise<void> {
      await within(timeout, commands.giveUpMove(...keysOf(shard), workspaceId, number));
    },
  };
}

export type Moves = ReturnType<typeof openMoves>;

/** Of what HGETALL says. */
function movesIn(told: string[]): Map<string, Move> {
  const moves = new Map<string, Move>();
  for (let at = 0; at < told.length; at += 2) moves.set(told[at]!, JSON.parse(told[at + 1]!) as Move);
  return moves;
}
