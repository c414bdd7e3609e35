import { type Service, withTimeout } from '../platform/lifecycle.ts';
import { poll } from '../platform/poll.ts';
import type { LaneStore } from './lane-store.ts';
import { everyLane, everyShard, laneName, shardOfLane } from './lanes.ts';

/** Milliseconds between two readings: while requests use the depth, and otherwise. */
const DEPTH_REFRESH_MS = 200;
const IDLE_REFRESH_MS = 2000;

/** Milliseconds for which a reading of the queue counts as current. */
export const FRESH_MS = 5000;

export interface LaneDepth {
  lane: string;
  /** Absent: shard 0. */
  shard?: number;
  /** Jobs that wait or are active. */
  depth: number;
}

/**
 * Reads how many jobs wait in the lanes, five times a second while requests arrive, so that a request can be refused
 * at once without a query to the queue. An idle process reads less often.
 *
 * @param onRefresh called after each reading of a shard
 */
export function watchDepth(
  store: LaneStore,
  lanes: number,
  onRefresh?: (shard: number, waiting: number) => Promise<void>,
) {
  const { layout } = store;
  const shards = everyShard(layout.shards).map((shard) => ({
    ...{ shard, waiting: 0, seenAt: Number.NEGATIVE_INFINITY },
  }));

  let isWanted = false;

  async function refresh(one: (typeof shards)[number]): Promise<void> {
    one.waiting = await store.waitingInShard(one.shard);
    one.seenAt = performance.now();
    await onRefresh?.(one.shard, one.waiting);
  }

  // While a shard is unavailable its last count is kept, and adding fails by itself.
  const pollers = shards.map((one) =>
    poll(DEPTH_REFRESH_MS, async () => {
      if (!isWanted && performance.now() - one.seenAt < IDLE_REFRESH_MS) return;
      isWanted = false;
      if (store.ready()) await refresh(one);
    }),
  );

  function waitingIn(shard: number): number {
    isWanted = true;
    return shards[shard]!.waiting;
  }

  const service: Service = {
    name: 'queue depth',
    async stop() {
      for (const poller of pollers) void poller.stop();
    },
  };
  return {
    ...service,
    /**
     * Jobs that waited in all lanes, or in the lanes of one shard, at most 200 ms ago; in an idle process, at most
     * 2 s ago.
     */
    waiting: (shard?: number) =>
      shard === undefined ? shards.reduce((sum, one) => sum + waitingIn(one.shard), 0) : waitingIn(shard),
    /** Waiting jobs of the shard that has most. */
    maxWaiting: () => Math.max(...shards.map((one) => waitingIn(one.shard))),
    /** Whether the values are current: every shard was read within the last 5 s. */
    isCurrent: () => shards.every(({ seenAt }) => performance.now() - seenAt < FRESH_MS),
    /** Jobs that wait or are active, by lane. Lanes of a shard that does not answer are omitted. */
    lanes: async () => {
      const read = await Promise.allSettled(everyLane(lanes).map(readLane));
      const depths = read.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
      if (depths.length === 0) throw (read[0] as PromiseRejectedResult).reason;
      return depths;
    },
  };

  async function readLane(lane: number): Promise<LaneDepth> {
    return { lane: laneName(lane), shard: shardOfLane(layout, lane), depth: await depthOf(store, lane) };
  }
}

export type Depth = ReturnType<typeof watchDepth>;

async function depthOf(store: LaneStore, lane: number): Promise<number> {
  const { waiting, active } = await store.depth(lane);
  return waiting + active;
}

/** State of a lane at one moment. */
export interface LaneNow extends LaneDepth {
  /** Age of its oldest job in seconds; 0 if the lane is empty. */
  oldestSeconds: number;
  /** The lane could not be read in time: its figures are not valid. */
  away?: true;
}

/** Reads the state of each lane on demand, for callers that need it rarely; the queue is not polled in between. */
export function createLaneDepths(store: LaneStore, { lanes, timeout }: { lanes: number; timeout: number }) {
  const { layout } = store;

  async function readNow(lane: number): Promise<LaneNow> {
    const [depth, oldest] = await Promise.all([depthOf(store, lane), store.oldest(lane)]);
    const age = (oldest?.age ?? 0) / 1000;
    const shard = shardOfLane(layout, lane);
    return { lane: laneName(lane), shard, depth, oldestSeconds: Math.round(age * 10) / 10 };
  }

  async function refresh(): Promise<LaneNow[]> {
    const read = await Promise.allSettled(
      everyLane(lanes).map((lane) => withTimeout(timeout, readNow(lane))),
    );
    const failed = read.filter((one) => one.status === 'rejected');
    if (failed.length === lanes) throw failed[0]!.reason;
    return read.map((one, lane) => {
      if (one.status === 'fulfilled') return one.value;
      return {
        lane: laneName(lane),
        shard: shardOfLane(layout, lane),
        depth: 0,
        oldestSeconds: 0,
        away: true,
      };
    });
  }

  return {
    /**
     * The state of each lane, in the order of the lanes.
     * @throws if every lane fails to answer within `timeout` milliseconds
     */
    readAll: refresh,
    /** Reads the state of each lane; undefined if the queue did not answer. */
    async read(): Promise<LaneNow[] | undefined> {
      return store.ready() ? refresh().catch(() => undefined) : undefined;
    },
  };
}

export type LaneDepths = ReturnType<typeof createLaneDepths>;

/** Milliseconds that a single reading waits for the queue. */
const PATIENCE_MS = 5000;

/** Reads every lane once. @throws if the queue does not answer */
export function readLaneDepths(store: LaneStore, lanes: number): Promise<LaneNow[]> {
  return createLaneDepths(store, { lanes, timeout: PATIENCE_MS }).readAll();
}
