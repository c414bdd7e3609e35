import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { FRESH_MS } from './depth.ts';
import type { LaneStore, OldestEnvelope } from './lane-store.ts';
import { everyLane, laneName, shardOfLane } from './lanes.ts';
import { oldestWithinShare } from './oldest-within-share.ts';

/** Milliseconds between two looks at the heads of the lanes. */
const LOOK_MS = 2000;

/** Milliseconds between two lines about the same envelope, or the same standstill. */
const WARN_MS = 60_000;

/** An envelope that stands where everything behind it in its lane has to wait. */
export interface OldEnvelope {
  lane: number;
  envelope: string;
  /** Since it was accepted. */
  seconds: number;
}

export interface WatchOldestOptions {
  lanes: number;
  maxAgeMs: number;
  log: Log;
  /** Whoever sees the whole fleet is told when it stands still. */
  standstill?: StandstillOptions;
}

/** An envelope of a lane; times by `performance.now()`. */
interface Seen {
  lane: number;
  envelope: string;
  addedAt: number;
  /** When it was found to be the oldest of its lane. */
  foundAt: number;
}

/**
 * Looks now and then for how long the oldest envelope of each lane has been there, and logs it when it is too long. A lane
 * whose oldest envelopes are the backlog of one sender is no problem as long as they take effect one after the other, and
 * those of the workspaces within their share do not wait too long.
 */
export function watchOldest(
  store: LaneStore,
  { lanes, maxAgeMs, log, standstill: watched }: WatchOldestOptions,
) {
  /** By lane, in the order of the lanes. */
  let oldest: Seen[] = [];
  /** Those that are too old. */
  let stuck: Seen[] = [];
  const warned = new Map<number, { envelope: string; at: number }>();
  let seenAt = Number.NEGATIVE_INFINITY;
  const standstill = watched && createStandstill(watched, log);
  const countActive = async () => {
    const depths = await Promise.allSettled(everyLane(lanes).map(store.depth));
    return depths.reduce((sum, one) => sum + (one.status === 'fulfilled' ? one.value.active : 0), 0);
  };

  // While the queue is away, or a shard of it, what is known of it stands, and grows older.
  const looks = poll(LOOK_MS, async () => {
    if (!store.ready()) return standstill?.forget();
    const before = new Map(oldest.map((one) => [one.lane, one]));
    const found = await Promise.allSettled(everyLane(lanes).map(store.oldest));
    const [first] = found;
    if (first?.status === 'rejected' && found.every(({ status }) => status === 'rejected'))
      throw first.reason;
    const now = performance.now();
    oldest = found.flatMap((one, lane) => {
      const last = before.get(lane);
      if (one.status === 'rejected') return last ?? [];
      const job = one.value;
      if (!job) return [];
      const foundAt = last?.envelope === job.id ? last.foundAt : now;
      return [{ lane, envelope: job.id, addedAt: now - job.age, foundAt }];
    });
    const old = oldest.filter(({ addedAt }) => now - addedAt > maxAgeMs);
    stuck = (await Promise.all(old.map((one) => stuckIn(one, found[one.lane])))).flat();
    seenAt = performance.now();
    warn();
    await standstill?.look(
      oldest.map(({ envelope }) => envelope),
      countActive,
    );
  });

  /** @returns the envelope for which a lane is stuck; nothing if only workspaces with a large backlog wait, and not in vain */
  async function stuckIn(one: Seen, found: PromiseSettledResult<OldestEnvelope | undefined> | undefined) {
    if (found?.status !== 'fulfilled' || !found.value) return [one];
    const now = performance.now();
    if (now - one.foundAt > maxAgeMs) return [one];
    const within = await oldestWithinShare(store, one.lane, found.value).catch(() => undefined);
    if (!within || within.age <= maxAgeMs) return [];
    return [{ ...one, envelope: within.id, addedAt: now - within.age }];
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
  const tooOld = () => aged(stuck);

  const service: Service = {
    name: 'oldest envelopes',
    async stop() {
      void looks.stop();
    },
  };
  return {
    ...service,
    look: looks.now,
    /** Those that are older than an envelope may be. */
    tooOld,
    /** Seconds by lane, with its shard, 0 where it is empty; undefined: the queue has told nothing for a while. */
    ages: () => {
      if (performance.now() - seenAt > FRESH_MS) return undefined;
      const found = new Map(aged(oldest).map(({ lane, seconds }) => [lane, seconds]));
      return everyLane(lanes).map((lane) => ({
        ...{ lane: laneName(lane), shard: shardOfLane(store.layout, lane) },
        seconds: found.get(lane) ?? 0,
      }));
    },
    /** Seconds for which the fleet has stood still; 0: it moves, or nobody looks. */
    standstill: () => standstill?.seconds() ?? 0,
  };
}

export type Oldest = ReturnType<typeof watchOldest>;

export interface StandstillOptions {
  /** Milliseconds for which jobs may wait while nobody takes any. */
  afterMs: number;
  /** Whether any worker has said a moment ago that it is there. */
  hasWorkers(): Promise<boolean>;
}

/**
 * A fleet stands still when jobs wait and nobody takes any: there is no worker, or none that works. The heads of the
 * lanes do not change then, and none is in work; or one is, in the hands of a worker that is gone. A batch that takes long
 * is no standstill.
 */
export function createStandstill({ afterMs, hasWorkers }: StandstillOptions, log: Log) {
  let heads = '';
  let movedAt = performance.now();
  /** By `performance.now()`; undefined: it moves. */
  let since: number | undefined;
  let toldAt = Number.NEGATIVE_INFINITY;
  let toldWorkers: boolean | undefined;

  function moves(): void {
    movedAt = performance.now();
    if (since === undefined) return;
    log.info({ seconds: Math.round((movedAt - since) / 1000) }, 'workers took jobs again');
    since = undefined;
    toldAt = Number.NEGATIVE_INFINITY;
  }

  /**
   * @param ids of the head of each lane that has one
   * @param countActive jobs in work, of all lanes
   */
  async function look(ids: string[], countActive: () => Promise<number>): Promise<void> {
    const found = ids.join();
    if (found === '' || found !== heads) {
      heads = found;
      return moves();
    }
    if (performance.now() - movedAt < afterMs) return;
    const workers = await hasWorkers();
    if (workers && (await countActive()) > 0) return moves();
    since ??= movedAt;
    const now = performance.now();
    // A worker that was killed counts as running for some seconds.
    if (now - toldAt < WARN_MS && workers === toldWorkers) return;
    toldAt = now;
    toldWorkers = workers;
    const why = workers
      ? 'workers are running but take no jobs; check their logs and /readyz'
      : 'no worker is running; start one (see worker in the Procfile)';
    log.error(
      { seconds: Math.round((now - since) / 1000), workers },
      `standstill: jobs are waiting, and ${why}`,
    );
  }

  return {
    look,
    /** The queue does not answer: nothing is known, and its being away is told elsewhere. */
    forget: moves,
    /** 0: it moves. */
    seconds: () => (since === undefined ? 0 : (performance.now() - since) / 1000),
  };
}
