import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { type Service, withTimeout } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll, until } from '../../src/platform/poll.ts';
import type { LaneStore } from '../../src/queue/lane-store.ts';
import type { Layout } from '../../src/queue/lanes.ts';
import { type RedisClient, whenConnected } from '../../src/queue/open-redis.ts';

/** Milliseconds between two heartbeats: the maximum delay before a lane that another worker gave back is taken. */
const BEAT_MS = 250;

/** Fraction of the lock duration after which a silent worker loses its lanes. */
const SHARE_OF_LOCK = 0.4;

/** Minimum lease in milliseconds: on a busy machine, a live worker can be silent for almost this long. */
const MIN_LEASE_MS = 1000;

/** Timeout in milliseconds for each of the last commands on shutdown, because Redis may be unavailable. */
const FAREWELL_MS = 500;

/** Milliseconds between two log lines about failed heartbeats. */
const WARN_MS = 30_000;

/** An open lane; `left` resolves with the version of an envelope that this worker cannot read. */
export interface WorkedLane extends Service {
  left: Promise<number>;
}

interface LaneSharing extends Omit<LaneSharesOptions, 'lease'> {
  /** The observer's connection, which fails immediately while Redis is unavailable. */
  redis: RedisClient;
  /** Lock duration of a job in milliseconds. */
  lockDuration: number;
  /** Milliseconds for which a lane is left to workers of a later release. */
  standBack: number;
  open(lane: number): WorkedLane;
  log: Log;
}

interface Worked {
  lane: WorkedLane;
  /** Resolves when the lane is closed and given back. */
  closing?: Promise<void>;
  /** Set when the lane is closed but not yet given back in Redis. */
  isClosed?: true;
}

/** Returns the milliseconds of silence after which other workers take over a worker's lanes. */
const leaseFor = (lockDuration: number) => Math.max(MIN_LEASE_MS, SHARE_OF_LOCK * lockDuration);

/**
 * Works this process's share of the lanes: opens the lanes that are assigned to it, closes the lanes that it has to
 * return, and gives a lane back only when it is closed. A worker that was frozen or disconnected for longer than its
 * lease closes the lanes that others have taken. While Redis does not answer, every worker keeps its lanes, because no
 * worker can make progress.
 */
export function shareLanes({ redis, lockDuration, standBack, open, log, ...given }: LaneSharing): Service {
  const shares = createLaneShares(redis, { ...given, lease: leaseFor(lockDuration) });
  /** Open and closing lanes, by number. */
  const worked = new Map<number, Worked>();
  let leaves = false;
  let own: number[] = [];
  let warned = Number.NEGATIVE_INFINITY;

  async function beat(): Promise<void> {
    own = await shares.beat(present(), leaves);
    reconcile();
  }

  /** Returns the numbers of the lanes that are not closed yet. */
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

  /** @param needed version of the envelope that this worker cannot read, if that is why the lane is closed */
  function close(number: number, needed?: number): Promise<void> {
    const one = worked.get(number);
    if (!one) return Promise.resolve();
    one.closing ??= closeOne(number, one, needed);
    return one.closing;
  }

  async function closeOne(number: number, one: Worked, needed?: number): Promise<void> {
    // An error means that the queue is unavailable. The next worker of the lane waits for the queue.
    const stopped = one.lane.stop().catch(() => {});
    // A lane that hangs may never stop. Its successor, in this or another worker, does not wait for it.
    await withTimeout(lockDuration, stopped).catch(() => {
      if (!leaves) log.warn({ lane: number }, 'lane did not close in time; abandoned');
    });
    one.isClosed = true;
    // No other worker takes the lane before Redis records that it was given back, so retry until Redis answers.
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
      await withTimeout(FAREWELL_MS, shares.beat(present(), true)).catch(() => {});
      await Promise.all([...worked.keys()].map((lane) => close(lane)));
      void beating.stop();
      await withTimeout(FAREWELL_MS, shares.end()).catch(() => {});
    },
  };
}

/** Redis keys of the lane assignment of all shards, in one Redis Cluster slot: the slot of the first shard. */
const [WORKERS, OWNERS, LATER, VERSION] = ['workers', 'owners', 'later', 'version'].map(
  (name) => `{penstock}:shares:${name}`,
) as [string, string, string, string];

/**
 * Lua script that gives back a lane that is assigned to another worker, or whose next envelope this worker cannot read.
 * ARGV: lane, worker id, envelope version or empty, milliseconds for which only workers that read this version may take
 * the lane.
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
  /** UUID of the worker. */
  id: string;
  /** Shards and lanes of the whole fleet. */
  layout: Layout;
  /** Latest envelope version that the worker can read. */
  reads: number;
  /** Milliseconds of silence after which other workers take over the worker's lanes. */
  lease: number;
  /** Ends the job lease that the previous worker of a lane may have left. */
  endLease: LaneStore['endLease'];
}

/**
 * Distributes the lanes among the live workers; the assignment is kept in Redis. The assignment only saves time and
 * connections. Two workers on one lane are as safe as one, because the queue leases one job of a lane at a time and the
 * ledger records which envelopes have taken effect.
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
   * Ends the job lease of a dead worker immediately instead of when its lock expires. This is a separate command
   * because the lane may be on another Redis server than the assignment. If it fails, the lock expires by itself.
   */
  const release = (lane: number) => endLease(lane).catch(() => {});

  return {
    /**
     * Sends a heartbeat, and takes or returns lanes to match the worker's share.
     *
     * @param open lanes that the worker has open or is closing; other lanes can be reassigned without waiting for it
     * @param leaves whether the worker is stopping: it gets no lanes, and others wait for the lanes in `open`
     * @returns the lanes to work, in order; the worker has to close and give back any other lane that it has open
     */
    async beat(open: number[], leaves = false): Promise<number[]> {
      const [newVersion, ...assigned] = await commands.shareLanes(
        ...[WORKERS, OWNERS, LATER, VERSION],
        ...[id, lease, layout.shards * layout.lanes, version, reads, leaves ? 'leaves' : ''],
        [',', ...open.map((lane) => `${lane},`)].join(''),
      );
      if (newVersion === undefined) return own;
      version = String(newVersion);
      // A minus sign marks a lane of a dead worker. Its lease is ended only now that the lane belongs to this worker.
      for (const lane of assigned)
        if (String(lane).startsWith('-')) void release(Number(String(lane).slice(1)));
      own = assigned.map((lane) => Number(String(lane).replace('-', '')));
      return own;
    },

    /** Gives back a closed lane for any worker with room. Has no effect if the lane belongs to another worker now. */
    async giveBack(lane: number): Promise<void> {
      await commands.giveLaneBack(OWNERS, LATER, VERSION, lane, id, '', 0);
    },

    /** Gives back a closed lane; for the given milliseconds, only workers that read version `needed` can take it. */
    async leaveToLater(lane: number, needed: number, milliseconds: number): Promise<void> {
      await commands.giveLaneBack(OWNERS, LATER, VERSION, lane, id, needed, milliseconds);
    },

    /** Removes the worker. Lanes that it has not given back are taken over like the lanes of a killed worker. */
    async end(): Promise<void> {
      await redis.multi().zrem(WORKERS, id, `-${id}`).incr(VERSION).exec();
    },
  };
}
