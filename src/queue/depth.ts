import type { Queue } from 'bullmq';
import { type Service, within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { openQueue, type QueueConnection } from './connection.ts';
import { laneName } from './lanes.ts';
import { laneServers } from './open-redis.ts';
import { createStandstill, type StandstillOptions } from './standstill.ts';
import { waitingIn } from './waiting.ts';

const DEPTH_REFRESH_MS = 200;

/** Milliseconds for which a look at the queue counts as a look at what is. */
const FRESH_MS = 5000;

export interface LaneDepth {
  lane: string;
  /** Jobs that wait or are in work. */
  depth: number;
}

/**
 * How much waits in the lanes: asked for five times a second, so that a request can be refused at once without a
 * question to the queue.
 */
export function watchDepth(connection: QueueConnection, lanes: number) {
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue<unknown>(connection, laneName(lane)));
  let waiting = 0;
  let seenAt = Number.NEGATIVE_INFINITY;
  // While the queue is away the last figure stands, and adding fails by itself.
  const looks = poll(DEPTH_REFRESH_MS, async () => {
    if (!connection.ready()) return;
    const counts = await Promise.all(queues.map((queue) => queue.getWaitingCount()));
    waiting = counts.reduce((sum, count) => sum + count, 0);
    seenAt = performance.now();
  });

  const service: Service = {
    name: 'queue depth',
    async stop() {
      void looks.stop();
      await Promise.all(queues.map((queue) => queue.close()));
    },
  };
  return {
    ...service,
    /** Jobs that waited in all lanes, at most 200 ms ago. */
    waiting: () => waiting,
    /** Whether that is known: the queue has told it a moment ago. */
    known: () => performance.now() - seenAt < FRESH_MS,
    /** Jobs that wait or are in work, of each lane. */
    lanes: () => Promise.all(queues.map(readLane)),
  };
}

export type Depth = ReturnType<typeof watchDepth>;

async function readLane(queue: Queue): Promise<LaneDepth> {
  const { waiting = 0, active = 0 } = await queue.getJobCounts('waiting', 'active');
  return { lane: queue.name, depth: waiting + active };
}

/** A lane at one moment. */
export interface LaneNow extends LaneDepth {
  /** Seconds since the oldest of its jobs was accepted; 0: it is empty. */
  oldestSeconds: number;
}

/** What each lane has before it, for who asks now and then: nothing is asked of the queue meanwhile. */
export function openLaneDepths(
  connection: QueueConnection,
  { lanes, timeout }: { lanes: number; timeout: number },
) {
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue<unknown>(connection, laneName(lane)));

  async function readNow(queue: Queue): Promise<LaneNow> {
    const [depth, oldest] = await Promise.all([readLane(queue), waitingIn(connection, queue).oldest()]);
    const age = oldest ? (Date.now() - oldest.timestamp) / 1000 : 0;
    return { ...depth, oldestSeconds: Math.max(0, Math.round(age * 10) / 10) };
  }

  return {
    /** In the order of the lanes. @throws when the queue does not say within `timeout` milliseconds */
    look: (): Promise<LaneNow[]> => within(timeout, Promise.all(queues.map(readNow))),
    /** The same; undefined: the queue did not say. */
    async read(): Promise<LaneNow[] | undefined> {
      return connection.ready() ? this.look().catch(() => undefined) : undefined;
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
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue<unknown>(connection, laneName(lane)));
  const searches = queues.map((queue) => waitingIn(connection, queue));
  /** By lane, in the order of the lanes. */
  let oldest: { lane: number; envelope: string; acceptedAt: number }[] = [];
  const warned = new Map<number, { envelope: string; at: number }>();
  let seenAt = Number.NEGATIVE_INFINITY;
  const standstill = watched && createStandstill(watched, log);
  const countActive = async () => {
    const counts = await Promise.all(queues.map((queue) => queue.getActiveCount()));
    return counts.reduce((sum, count) => sum + count, 0);
  };

  // While the queue is away what is known of it stands, and grows older.
  const looks = poll(LOOK_MS, async () => {
    if (!connection.ready()) return standstill?.forget();
    const found = await Promise.all(searches.map((waiting) => waiting.oldest()));
    oldest = found.flatMap((job, lane) =>
      job ? [{ lane, envelope: job.id, acceptedAt: job.timestamp }] : [],
    );
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
    /** Seconds by lane, 0 where it is empty; undefined: the queue has told nothing for a while. */
    ages: () => {
      if (performance.now() - seenAt > FRESH_MS) return undefined;
      const found = new Map(aged().map(({ lane, seconds }) => [lane, seconds]));
      return queues.map(({ name }, lane) => ({ lane: name, seconds: found.get(lane) ?? 0 }));
    },
    /** Seconds for which the fleet has stood still; 0: it moves, or nobody looks. */
    standstill: () => standstill?.seconds() ?? 0,
  };
}

export type Oldest = ReturnType<typeof watchOldest>;

const MEMORY_REFRESH_MS = 200;

/** Bytes that a server uses and may use, by its INFO; `most` is 0 where that has no bound. */
export function memoryOf(info: string): { used: number; most: number } {
  const read = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
  return { used: read('used_memory'), most: read('maxmemory') };
}

/** How full Redis is, of several servers the fullest: asked for five times a second, so that a request can be refused at once. */
export function watchMemory({ redis }: QueueConnection) {
  let used = 0;
  let seenAt = Number.NEGATIVE_INFINITY;
  // While Redis is away, or does not tell, adding fails by itself.
  const looks = poll(MEMORY_REFRESH_MS, async () => {
    if (redis?.status !== 'ready') return;
    const told = await Promise.all(laneServers(redis).map((server) => server.info('memory')));
    const parts = told.map(memoryOf).filter(({ most }) => most > 0);
    used = Math.max(0, ...parts.map(({ used, most }) => used / most));
    if (parts.length > 0) seenAt = performance.now();
  });
  const service: Service = {
    name: 'queue memory',
    async stop() {
      void looks.stop();
    },
  };
  return {
    ...service,
    /** Percent of its maxmemory that Redis has used, at most 200 ms ago; 0: it has no maxmemory, or does not tell. */
    usedPercent: () => used * 100,
    /** Whether that is known: Redis has a maxmemory, and has told it a moment ago. */
    known: () => performance.now() - seenAt < FRESH_MS,
  };
}
