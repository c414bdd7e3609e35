import { type Service, within } from '../platform/lifecycle.ts';
import { poll } from '../platform/poll.ts';
import type { LaneStore } from './lane-store.ts';
import { everyLane, everyShard, laneName, shardOfLane } from './lanes.ts';

/** Milliseconds between two looks while requests ask for the depth, and otherwise. */
const DEPTH_REFRESH_MS = 200;
const IDLE_REFRESH_MS = 2000;

/** Milliseconds for which a look at the queue counts as a look at what is. */
export const FRESH_MS = 5000;

export interface LaneDepth {
  lane: string;
  /** Absent: the first. */
  shard?: number;
  /** Jobs that wait or are in work. */
  depth: number;
}

/**
 * How much waits in the lanes: asked for five times a second while requests come, so that a request can be refused at once
 * without a question to the queue. An idle process asks less often.
 *
 * @param onLook called after each look at a shard
 */
export function watchDepth(
  store: LaneStore,
  lanes: number,
  onLook?: (shard: number, waiting: number) => Promise<void>,
) {
  const { layout } = store;
  const shards = everyShard(layout.shards).map((shard) => ({
    ...{ shard, waiting: 0, seenAt: Number.NEGATIVE_INFINITY },
  }));

  let isWanted = false;

  async function look(one: (typeof shards)[number]): Promise<void> {
    one.waiting = await store.waitingInShard(one.shard);
    one.seenAt = performance.now();
    await onLook?.(one.shard, one.waiting);
  }

  // While a shard is away its last figure stands, and adding fails by itself.
  const pollers = shards.map((one) =>
    poll(DEPTH_REFRESH_MS, async () => {
      if (!isWanted && performance.now() - one.seenAt < IDLE_REFRESH_MS) return;
      isWanted = false;
      if (store.ready()) await look(one);
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
    /** Jobs that waited in all lanes, or in those of one shard, at most 200 ms ago; of an idle process, at most 2 s ago. */
    waiting: (shard?: number) =>
      shard === undefined ? shards.reduce((sum, one) => sum + waitingIn(one.shard), 0) : waitingIn(shard),
    /** Those of the shard that has most. */
    mostWaiting: () => Math.max(...shards.map((one) => waitingIn(one.shard))),
    /** Whether that is known: the queue has told it a moment ago. */
    known: () => shards.every(({ seenAt }) => performance.now() - seenAt < FRESH_MS),
    /** Jobs that wait or are in work, of each lane; those of a shard that does not answer are left out. */
    lanes: async () => {
      const read = await Promise.allSettled(everyLane(lanes).map(readLane));
      const found = read.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
      if (found.length === 0) throw (read[0] as PromiseRejectedResult).reason;
      return found;
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

/** A lane at one moment. */
export interface LaneNow extends LaneDepth {
  /** Seconds since the oldest of its jobs was accepted; 0: it is empty. */
  oldestSeconds: number;
  /** Its shard does not answer: the figures are none. */
  away?: true;
}

/** What each lane has before it, for who asks now and then: nothing is asked of the queue meanwhile. */
export function createLaneDepths(store: LaneStore, { lanes, timeout }: { lanes: number; timeout: number }) {
  const { layout } = store;

  async function readNow(lane: number): Promise<LaneNow> {
    const [depth, oldest] = await Promise.all([depthOf(store, lane), store.oldest(lane)]);
    const age = (oldest?.age ?? 0) / 1000;
    const shard = shardOfLane(layout, lane);
    return { lane: laneName(lane), shard, depth, oldestSeconds: Math.round(age * 10) / 10 };
  }

  async function look(): Promise<LaneNow[]> {
    const read = await Promise.allSettled(everyLane(lanes).map((lane) => within(timeout, readNow(lane))));
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
    /** In the order of the lanes. @throws when no lane says anything within `timeout` milliseconds */
    look,
    /** The same; undefined: the queue did not say. */
    async read(): Promise<LaneNow[] | undefined> {
      return store.ready() ? look().catch(() => undefined) : undefined;
    },
  };
}

export type LaneDepths = ReturnType<typeof createLaneDepths>;

/** Milliseconds that a single look waits for the queue. */
const PATIENCE_MS = 5000;

/** Looks at every lane once. @throws when the queue does not answer */
export function lookAtLanes(store: LaneStore, lanes: number): Promise<LaneNow[]> {
  return createLaneDepths(store, { lanes, timeout: PATIENCE_MS }).look();
}
