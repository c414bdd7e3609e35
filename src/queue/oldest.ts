import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { FRESH_MS } from './depth.ts';
import type { LaneStore, OldestEnvelope } from './lane-store.ts';
import { everyLane, laneName, shardOfLane } from './lanes.ts';
import { oldestWithinShare } from './oldest-within-share.ts';

/** Milliseconds between two checks of the oldest envelope of each lane. */
const LOOK_MS = 2000;

/** Age in milliseconds of the oldest envelope of a lane above which the lane is checked further. */
const LATE_MS = 30_000;

/** Milliseconds before a warning about the same envelope or the same standstill is logged again. */
const WARN_MS = 60_000;

/** The oldest envelope of a lane. All later envelopes of the lane wait for it. */
interface OldEnvelope {
  lane: number;
  envelope: string;
  /** Age since the envelope was accepted. */
  seconds: number;
}

/** A lane that is late since a time of `performance.now()`, with the envelope that makes it late. */
interface Late extends Seen {
  since: number;
}

/** Ages of a lane in seconds; see `ages` of `watchOldest`. */
export interface LaneAge {
  lane: string;
  shard: number;
  seconds: number;
  stuckSeconds: number;
}

interface WatchOldestOptions {
  lanes: number;
  maxAgeMs: number;
  log: Log;
  /** Standstill detection. Set only in processes that can see the whole fleet. */
  standstill?: StandstillOptions;
}

/** The oldest envelope of a lane as last read. Times are values of `performance.now()`. */
interface Seen {
  lane: number;
  envelope: string;
  addedAt: number;
  /** When this envelope was first seen as the oldest of its lane. */
  foundAt: number;
}

/**
 * Checks the age of the oldest envelope of each lane every 2 s and logs an error when it exceeds `maxAgeMs`. A lane
 * that holds the backlog of one workspace is not reported as long as its oldest envelope keeps changing and envelopes
 * of workspaces within their share do not exceed that age.
 */
export function watchOldest(
  store: LaneStore,
  { lanes, maxAgeMs, log, standstill: watched }: WatchOldestOptions,
) {
  /** The oldest envelopes, in the order of the lanes. */
  let oldest: Seen[] = [];
  /** Lanes whose oldest envelope exceeds LATE_MS or `maxAgeMs`. */
  let late: Late[] = [];
  const warned = new Map<number, { envelope: string; at: number }>();
  let seenAt = Number.NEGATIVE_INFINITY;
  const standstill = watched && createStandstill(watched, log);
  const countActive = async () => {
    const depths = await Promise.allSettled(everyLane(lanes).map(store.depth));
    return depths.reduce((sum, one) => sum + (one.status === 'fulfilled' ? one.value.active : 0), 0);
  };

  // While the queue or a shard is unavailable, the last known envelopes are kept and keep aging.
  const poller = poll(LOOK_MS, async () => {
    if (!store.ready()) return standstill?.forget();
    const before = new Map(oldest.map((one) => [one.lane, one]));
    const reads = await Promise.allSettled(everyLane(lanes).map(store.oldest));
    const [first] = reads;
    if (first?.status === 'rejected' && reads.every(({ status }) => status === 'rejected'))
      throw first.reason;
    const now = performance.now();
    oldest = reads.flatMap((one, lane) => {
      const last = before.get(lane);
      if (one.status === 'rejected') return last ?? [];
      const job = one.value;
      if (!job) return [];
      const foundAt = last?.envelope === job.id ? last.foundAt : now;
      return [{ lane, envelope: job.id, addedAt: now - job.age, foundAt }];
    });
    const old = oldest.filter(({ addedAt }) => now - addedAt > Math.min(maxAgeMs, LATE_MS));
    late = await Promise.all(old.map((one) => lateIn(one, reads[one.lane])));
    seenAt = performance.now();
    warn();
    await standstill?.check(
      oldest.map(({ envelope }) => envelope),
      countActive,
    );
  });

  /**
   * Finds out for how long a lane has been late: since its oldest envelope became the oldest, or since an envelope of a
   * workspace within its share was accepted.
   */
  async function lateIn(
    one: Seen,
    read: PromiseSettledResult<OldestEnvelope | undefined> | undefined,
  ): Promise<Late> {
    const now = performance.now();
    if (read?.status !== 'fulfilled' || !read.value) return { ...one, since: one.addedAt };
    if (now - one.foundAt > maxAgeMs) return { ...one, since: one.foundAt };
    const waiting = await oldestWithinShare(store, one.lane, read.value).catch(() => undefined);
    if (!waiting || now - waiting.age > one.foundAt) return { ...one, since: one.foundAt };
    const addedAt = now - waiting.age;
    return { ...one, envelope: waiting.id, addedAt, since: addedAt };
  }

  function warn(): void {
    const now = performance.now();
    for (const old of tooOld()) {
      const last = warned.get(old.lane);
      if (last?.envelope === old.envelope && now - last.at < WARN_MS) continue;
      warned.set(old.lane, { envelope: old.envelope, at: now });
      log.error(old, 'oldest job of a lane exceeded MAX_ENVELOPE_AGE_MS; the lane is stuck');
    }
  }

  const aged = (seen: Seen[]): OldEnvelope[] =>
    seen.map(({ lane, envelope, addedAt }) => ({
      lane,
      envelope,
      seconds: Math.round((performance.now() - addedAt) / 1000),
    }));
  const tooOld = () => aged(late.filter(({ since }) => performance.now() - since > maxAgeMs));

  const service: Service = {
    name: 'oldest envelopes',
    async stop() {
      void poller.stop();
    },
  };
  return {
    ...service,
    check: poller.now,
    /** The oldest envelopes that exceed `maxAgeMs`. */
    tooOld,
    /**
     * Returns the age of the oldest envelope of each lane, 0 if the lane is empty, and the time for which the lane has
     * been late, 0 until its oldest envelope exceeds LATE_MS. Returns undefined if the queue has not answered recently.
     */
    ages: (): LaneAge[] | undefined => {
      if (performance.now() - seenAt > FRESH_MS) return undefined;
      const secondsOf = new Map(aged(oldest).map(({ lane, seconds }) => [lane, seconds]));
      const sinceOf = new Map(late.map(({ lane, since }) => [lane, since]));
      const lateSeconds = (lane: number) =>
        Math.max(0, Math.round((performance.now() - (sinceOf.get(lane) ?? Number.POSITIVE_INFINITY)) / 1000));
      return everyLane(lanes).map((lane) => ({
        ...{ lane: laneName(lane), shard: shardOfLane(store.layout, lane) },
        ...{ seconds: secondsOf.get(lane) ?? 0, stuckSeconds: lateSeconds(lane) },
      }));
    },
    /** Seconds for which the fleet has stood still; 0 if jobs are being taken or standstill detection is off. */
    standstill: () => standstill?.seconds() ?? 0,
  };
}

export type Oldest = ReturnType<typeof watchOldest>;

interface StandstillOptions {
  /** Milliseconds for which jobs may wait without a worker taking one. */
  afterMs: number;
  /** Whether any worker has sent a heartbeat recently. */
  hasWorkers(): Promise<boolean>;
}

/**
 * Detects a standstill: jobs wait, but no worker takes one, because workers are not running or do not work. The
 * oldest envelope of every lane then stays the same, and no job is active (or the only active jobs belong to workers
 * that are gone). A batch that takes long is not a standstill.
 */
export function createStandstill({ afterMs, hasWorkers }: StandstillOptions, log: Log) {
  let heads = '';
  let movedAt = performance.now();
  /** Start of the standstill by `performance.now()`; undefined while jobs are being taken. */
  let since: number | undefined;
  let reportedAt = Number.NEGATIVE_INFINITY;
  let reportedWorkers: boolean | undefined;

  function moves(): void {
    movedAt = performance.now();
    if (since === undefined) return;
    log.info({ seconds: Math.round((movedAt - since) / 1000) }, 'workers took jobs again');
    since = undefined;
    reportedAt = Number.NEGATIVE_INFINITY;
  }

  /**
   * Compares the oldest envelopes with the previous check.
   * @param ids id of the oldest envelope of each lane that is not empty
   * @param countActive number of active jobs in all lanes
   */
  async function check(ids: string[], countActive: () => Promise<number>): Promise<void> {
    const currentHeads = ids.join();
    if (currentHeads === '' || currentHeads !== heads) {
      heads = currentHeads;
      return moves();
    }
    if (performance.now() - movedAt < afterMs) return;
    const workers = await hasWorkers();
    if (workers && (await countActive()) > 0) return moves();
    since ??= movedAt;
    const now = performance.now();
    // A worker that was killed still counts as running for some seconds, so the cause may change.
    if (now - reportedAt < WARN_MS && workers === reportedWorkers) return;
    reportedAt = now;
    reportedWorkers = workers;
    const why = workers
      ? 'workers are running but take no jobs; check their logs and /readyz'
      : 'no worker is running; start one (see worker in the Procfile)';
    log.error(
      { seconds: Math.round((now - since) / 1000), workers },
      `standstill: jobs are waiting, and ${why}`,
    );
  }

  return {
    check,
    /** Resets the detection. Call it when the queue does not answer; that failure is reported elsewhere. */
    forget: moves,
    /** Seconds for which the fleet has stood still; 0 if jobs are being taken. */
    seconds: () => (since === undefined ? 0 : (performance.now() - since) / 1000),
  };
}
