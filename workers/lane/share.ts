import { type Service, within } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll, rest } from '../../src/platform/poll.ts';
import { createLaneShares, type LaneSharesOptions } from '../../src/queue/lane-shares.ts';
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

export interface LaneSharing extends Omit<LaneSharesOptions, 'lease'> {
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
export const leaseFor = (lockDuration: number) => Math.max(SHORTEST_LEASE_MS, SHARE_OF_LOCK * lockDuration);

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
      log.info({ opened: missing, closed: surplus, lanes: own.length }, 'the lanes are shared out anew');
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
      if (!leaves) log.warn({ lane: number }, 'a lane hangs as it is closed; it is given up');
    });
    one.isClosed = true;
    // Nobody takes a lane that its worker has closed and Redis has not heard of: it is told until it answers.
    while (!(await isGivenBack(number, needed)) && !leaves) await rest(BEAT_MS);
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
    log.warn({ err: error }, 'the lanes cannot be shared out now; this worker keeps those that it has');
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
