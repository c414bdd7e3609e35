import type { Queue } from 'bullmq';
import { type Service, within } from '../platform/lifecycle.ts';
import { poll } from '../platform/poll.ts';
import { openLanes, type QueueConnection } from './connection.ts';
import { everyShard, shardOfLane } from './lanes.ts';
import { waitingIn } from './waiting.ts';

const DEPTH_REFRESH_MS = 200;

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
 * How much waits in the lanes: asked for five times a second, so that a request can be refused at once without a
 * question to the queue.
 */
export function watchDepth(connection: QueueConnection, lanes: number) {
  const { layout } = connection;
  const queues = openLanes<unknown>(connection, lanes);
  const shards = everyShard(layout.shards).map((shard) => ({
    queues: queues.filter((_, lane) => shardOfLane(layout, lane) === shard),
    waiting: 0,
    seenAt: Number.NEGATIVE_INFINITY,
  }));

  async function look(shard: (typeof shards)[number]): Promise<void> {
    shard.waiting = await countWaiting(connection, shard.queues);
    shard.seenAt = performance.now();
  }

  // While a shard is away its last figure stands, and adding fails by itself.
  const pollers = shards.map((shard) =>
    poll(DEPTH_REFRESH_MS, async () => {
      if (connection.ready()) await look(shard);
    }),
  );

  const service: Service = {
    name: 'queue depth',
    async stop() {
      for (const poller of pollers) void poller.stop();
      await Promise.all(queues.map((queue) => queue.close()));
    },
  };
  return {
    ...service,
    /** Jobs that waited in all lanes, or in those of one shard, at most 200 ms ago. */
    waiting: (shard?: number) =>
      shard === undefined ? shards.reduce((sum, one) => sum + one.waiting, 0) : shards[shard]!.waiting,
    /** Those of the shard that has most. */
    mostWaiting: () => Math.max(...shards.map(({ waiting }) => waiting)),
    /** Whether that is known: the queue has told it a moment ago. */
    known: () => shards.every(({ seenAt }) => performance.now() - seenAt < FRESH_MS),
    /** Jobs that wait or are in work, of each lane; those of a shard that does not answer are left out. */
    lanes: async () => {
      const read = await Promise.allSettled(queues.map(readLane));
      const found = read.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
      if (found.length === 0) throw (read[0] as PromiseRejectedResult).reason;
      return found;
    },
  };

  async function readLane(queue: Queue, lane: number): Promise<LaneDepth> {
    return { lane: queue.name, shard: shardOfLane(layout, lane), depth: await depthOf(queue) };
  }
}

export type Depth = ReturnType<typeof watchDepth>;

/**
 * Jobs that wait in lanes of one shard. On Redis in one round trip: asked for a lane at a time, hundreds of them would
 * take web a tenth of its processor.
 */
async function countWaiting({ redis }: QueueConnection, queues: Queue[]): Promise<number> {
  if (!redis) {
    const counts = await Promise.all(queues.map((queue) => queue.getWaitingCount()));
    return counts.reduce((sum, count) => sum + count, 0);
  }
  const asked = redis.pipeline();
  for (const queue of queues) asked.llen(queue.toKey('wait'));
  let sum = 0;
  for (const [error, length] of (await asked.exec()) ?? []) {
    if (error) throw error;
    sum += Number(length);
  }
  return sum;
}

async function depthOf(queue: Queue): Promise<number> {
  const { waiting = 0, active = 0 } = await queue.getJobCounts('waiting', 'active');
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
export function openLaneDepths(
  connection: QueueConnection,
  { lanes, timeout }: { lanes: number; timeout: number },
) {
  const queues = openLanes<unknown>(connection, lanes);

  async function readNow(queue: Queue, lane: number): Promise<LaneNow> {
    const [depth, oldest] = await Promise.all([depthOf(queue), waitingIn(connection, queue).oldest()]);
    const age = (oldest?.age ?? 0) / 1000;
    const shard = shardOfLane(connection.layout, lane);
    return { lane: queue.name, shard, depth, oldestSeconds: Math.round(age * 10) / 10 };
  }

  async function look(): Promise<LaneNow[]> {
    const read = await Promise.allSettled(queues.map((queue, lane) => within(timeout, readNow(queue, lane))));
    const failed = read.filter((one) => one.status === 'rejected');
    if (failed.length === queues.length) throw failed[0]!.reason;
    return read.map((one, lane) => {
      if (one.status === 'fulfilled') return one.value;
      const shard = shardOfLane(connection.layout, lane);
      return { lane: queues[lane]!.name, shard, depth: 0, oldestSeconds: 0, away: true };
    });
  }

  return {
    /** In the order of the lanes. @throws when no lane says anything within `timeout` milliseconds */
    look,
    /** The same; undefined: the queue did not say. */
    async read(): Promise<LaneNow[] | undefined> {
      return connection.ready() ? look().catch(() => undefined) : undefined;
    },
    async stop() {
      await Promise.all(queues.map((queue) => queue.close().catch(() => {})));
    },
  };
}

/** Milliseconds that a single look waits for the queue. */
const PATIENCE_MS = 5000;

/** Looks at every lane once. @throws when the queue does not answer */
export async function lookAtLanes(connection: QueueConnection, lanes: number): Promise<LaneNow[]> {
  const depths = openLaneDepths(connection, { lanes, timeout: PATIENCE_MS });
  try {
    return await depths.look();
  } finally {
    await depths.stop();
  }
}
