import type { Queue } from 'bullmq';
import { type Service, within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { openLanes, type QueueConnection } from './connection.ts';
import { everyShard, shardOfLane } from './shards.ts';
import { createStandstill, type StandstillOptions } from './standstill.ts';
import { waitingIn } from './waiting.ts';

const DEPTH_REFRESH_MS = 200;

/** Milliseconds for which a look at the queue counts as a look at what is. */
const FRESH_MS = 5000;

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
    const age = oldest ? (Date.now() - oldest.timestamp) / 1000 : 0;
    const shard = shardOfLane(connection.layout, lane);
    return { lane: queue.name, shard, depth, oldestSeconds: Math.max(0, Math.round(age * 10) / 10) };
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

const LOOK_MS = 2000;

/** Milliseconds between two lines about the same envelope. */
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

/** Looks now and then for how long the oldest envelope of each lane has been there, and says so when it is too long. */
export function watchOldest(
  connection: QueueConnection,
  { lanes, maxAgeMs, log, standstill: watched }: WatchOldestOptions,
) {
  const queues = openLanes<unknown>(connection, lanes);
  const searches = queues.map((queue) => waitingIn(connection, queue));
  /** By lane, in the order of the lanes. */
  let oldest: { lane: number; envelope: string; acceptedAt: number }[] = [];
  const warned = new Map<number, { envelope: string; at: number }>();
  let seenAt = Number.NEGATIVE_INFINITY;
  const standstill = watched && createStandstill(watched, log);
  const countActive = async () => {
    const counts = await Promise.allSettled(queues.map((queue) => queue.getActiveCount()));
    return counts.reduce((sum, one) => sum + (one.status === 'fulfilled' ? one.value : 0), 0);
  };

  // While the queue is away, or a shard of it, what is known of it stands, and grows older.
  const looks = poll(LOOK_MS, async () => {
    if (!connection.ready()) return standstill?.forget();
    const before = new Map(oldest.map((one) => [one.lane, one]));
    const found = await Promise.allSettled(searches.map((waiting) => waiting.oldest()));
    const [first] = found;
    if (first?.status === 'rejected' && found.every(({ status }) => status === 'rejected'))
      throw first.reason;
    oldest = found.flatMap((one, lane) => {
      if (one.status === 'rejected') return before.get(lane) ?? [];
      const job = one.value;
      return job ? [{ lane, envelope: job.id, acceptedAt: job.timestamp }] : [];
    });
    seenAt = performance.now();
    warn();
    await standstill?.look(
      oldest.map(({ envelope }) => envelope),
      countActive,
    );
  });

  function warn(): void {
    const now = performance.now();
    for (const old of tooOld()) {
      const last = warned.get(old.lane);
      if (last?.envelope === old.envelope && now - last.at < WARN_MS) continue;
      warned.set(old.lane, { envelope: old.envelope, at: now });
      log.error(old, 'an envelope waits too long, and its lane with it');
    }
  }

  const aged = (): OldEnvelope[] =>
    oldest.map(({ lane, envelope, acceptedAt }) => ({
      lane,
      envelope,
      seconds: Math.max(0, Math.round((Date.now() - acceptedAt) / 1000)),
    }));
  const tooOld = () => aged().filter(({ seconds }) => seconds * 1000 > maxAgeMs);

  const service: Service = {
    name: 'oldest envelopes',
    async stop() {
      void looks.stop();
      await Promise.all(queues.map((queue) => queue.close().catch(() => {})));
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
      const found = new Map(aged().map(({ lane, seconds }) => [lane, seconds]));
      return queues.map(({ name }, lane) => ({
        ...{ lane: name, shard: shardOfLane(connection.layout, lane) },
        seconds: found.get(lane) ?? 0,
      }));
    },
    /** Seconds for which the fleet has stood still; 0: it moves, or nobody looks. */
    standstill: () => standstill?.seconds() ?? 0,
  };
}

export type Oldest = ReturnType<typeof watchOldest>;
