import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { type Service, within } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll, until } from '../../src/platform/poll.ts';
import type { LaneStore } from '../../src/queue/lane-store.ts';
import type { Layout } from '../../src/queue/lanes.ts';
import { type RedisClient, whenConnected } from '../../src/queue/open-redis.ts';

/** Milliseconds between two heartbeats: the longest wait for a lane that another worker has given back. */
const BEAT_MS = 250;

/** A worker that is silent for this share of a lock's duration has no lane any more. */
const SHARE_OF_LOCK = 0.4;

/** Milliseconds; a shorter silence is no sign of death on a machine that is busy. */
const SHORTEST_LEASE_MS = 1000;

/** Milliseconds for the last words to a Redis that may be away. */
const FAREWELL_MS = 500;

/** Milliseconds between two lines about a Redis that does not answer. */
const WARN_MS = 30_000;

/** A lane that is worked; `left` resolves with the version of an envelope that this worker does not read. */
export interface WorkedLane extends Service {
  left: Promise<number>;
}

interface LaneSharing extends Omit<LaneSharesOptions, 'lease'> {
  /** That of the observer: it fails at once while Redis is away. */
  redis: RedisClient;
  /** Milliseconds. */
  lockDuration: number;
  /** Milliseconds for which a lane is left to workers of a later release. */
  standBack: number;
  open(lane: number): WorkedLane;
  log: Log;
}

interface Worked {
  lane: WorkedLane;
  /** Resolves when it is closed and given back. */
  closing?: Promise<void>;
  /** Closed, and Redis hears of it. */
  isClosed?: true;
}

/** Milliseconds of silence after which a worker's lanes belong to others. */
const leaseFor = (lockDuration: number) => Math.max(SHORTEST_LEASE_MS, SHARE_OF_LOCK * lockDuration);

/**
 * Works this process's share of the lanes, and no other: opens what it is given, closes what it is to give back, and
 * gives it back only then. One that was away for longer than its lease, frozen or cut off, closes what others have taken.
 * While Redis does not answer everything stays as it is: nobody could work anything.
 */
export function shareLanes({ redis, lockDuration, standBack, open, log, ...given }: LaneSharing): Service {
  const shares = createLaneShares(redis, { ...given, lease: leaseFor(lockDuration) });
  /** By number. */
  const worked = new Map<number, Worked>();
  let leaves = false;
  let own: number[] = [];
  let warned = Number.NEGATIVE_INFINITY;

  async function beat(): Promise<void> {
    own = await shares.beat(present(), leaves);
    reconcile();
  }

  /** Lanes that are not closed yet. */
  const present = () => [...worked].filter(([, { isClosed }]) => !isClosed).map(([lane]) => lane);

  function reconcile(): void {
    if (leaves) return;
    const wanted = new Set(own);
    const surplus = [...worked.keys()].filter((lane) => !wanted.has(lane) && !worked.get(lane)?.closing);
    const missing = own.filter((lane) => !worked.has(lane));
    for (const lane of surplus) void close(lane);
    for (const lane of missing) openOne(lane);
    if (surplus.length + missing.length > 0)
      log.info(
        { opened: missing, closed: surplus, lanes: own.length },
        'lanes were redistributed among the workers',
      );
  }

  function openOne(number: number): void {
    const lane = open(number);
    worked.set(number, { lane });
    void lane.left.then((version) => {
      if (worked.get(number)?.lane === lane) void close(number, version);
    });
  }

  /** @param needed the version of the envelope that the lane is left for */
  function close(number: number, needed?: number): Promise<void> {
    const one = worked.get(number);
    if (!one) return Promise.resolve();
    one.closing ??= closeOne(number, one, needed);
    return one.closing;
  }

  async function closeOne(number: number, one: Worked, needed?: number): Promise<void> {
    // The queue may be away; whoever works the lane next waits for it.
    const stopped = one.lane.stop().catch(() => {});
    // One that hangs may never end: its successor does not wait for it, here or at another worker.
    await within(lockDuration, stopped).catch(() => {
      if (!leaves) log.warn({ lane: number }, 'lane did not close in time; abandoned');
    });
    one.isClosed = true;
    // Nobody takes a lane that its worker has closed and Redis has not heard of: it is told until it answers.
    await until(() => isGivenBack(number, needed), { every: BEAT_MS, isSo: (given) => given || leaves });
    worked.delete(number);
    void beating.now();
    if (leaves) await stopped;
  }

  function isGivenBack(number: number, needed?: number): Promise<boolean> {
    const given =
      needed === undefined ? shares.giveBack(number) : shares.leaveToLater(number, needed, standBack);
    return given.then(
      () => true,
      () => false,
    );
  }

  const beating = poll(BEAT_MS, beat, (error) => {
    if (performance.now() - warned < WARN_MS) return;
    warned = performance.now();
    log.warn({ err: error }, 'lanes could not be redistributed; this worker keeps its lanes');
  });
  void beating.now();
  const forget = whenConnected(redis, () => void beating.now());

  return {
    name: 'shares of the lanes',
    async stop() {
      leaves = true;
      forget();
      await within(FAREWELL_MS, shares.beat(present(), true)).catch(() => {});
      await Promise.all([...worked.keys()].map((lane) => close(lane)));
      void beating.stop();
      await within(FAREWELL_MS, shares.end()).catch(() => {});
    },
  };
}

/** All in one slot of a Redis Cluster, that of the first shard: whose each lane is, of every shard, is decided there. */
const [WORKERS, OWNERS, LATER, VERSION] = ['workers', 'owners', 'later', 'version'].map(
  (name) => `{penstock}:shares:${name}`,
) as [string, string, string, string];

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
}

interface LaneSharesOptions {
  /** Of the worker, a UUID. */
  id: string;
  /** Of the whole fleet. */
  layout: Layout;
  /** Latest version of envelopes that the worker reads. */
  reads: number;
  /** Milliseconds of silence after which the worker's lanes belong to others. */
  lease: number;
  /** Ends the lease that the last worker of a lane may have left. */
  endLease: LaneStore['endLease'];
}

/**
 * One worker's part in sharing the lanes out among those that are alive, kept in Redis. Who has which lane is for speed
 * and for the number of connections. Two workers of one lane are as safe as one: the queue hands out one job of a lane
 * at a time, and the ledger knows what has taken effect.
 */
export function createLaneShares(
  redis: RedisClient,
  { id, layout, reads, lease, endLease }: LaneSharesOptions,
) {
  const lua = readFileSync(join(packageRoot, 'src/queue/share-lanes.lua'), 'utf8');
  redis.defineCommand('shareLanes', { numberOfKeys: 4, lua });
  redis.defineCommand('giveLaneBack', { numberOfKeys: 3, lua: giveBack });
  const commands = redis as unknown as Commands;
  let version = '';
  let own: number[] = [];

  /**
   * Lets a lane hand out the envelope of a worker that is gone now, and not when its lock expires. This is a separate
   * command, because the lane may be on another server than the shares. If it fails, the lock expires.
   */
  const release = (lane: number) => endLease(lane).catch(() => {});

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
