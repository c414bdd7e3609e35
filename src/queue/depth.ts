import type { Queue } from 'bullmq';
import { type Service, within } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { openQueue, type QueueConnection } from './connection.ts';
import { laneName } from './lanes.ts';
import { waitingIn } from './waiting.ts';

const DEPTH_REFRESH_MS = 200;

export interface LaneDepth {
  lane: string;
  /** Jobs that wait or are in work. */
  depth: number;
  /** Seconds since the oldest of them was accepted; 0: there is none. */
  oldestSeconds: number;
}

/**
 * How much waits in the lanes: asked for five times a second, so that a request can be refused at once without a
 * question to the queue.
 */
export function watchDepth(connection: QueueConnection, lanes: number) {
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue<unknown>(connection, laneName(lane)));
  let waiting = 0;
  // While the queue is away the last figure stands, and adding fails by itself.
  const looks = poll(DEPTH_REFRESH_MS, async () => {
    if (!connection.ready()) return;
    const counts = await Promise.all(queues.map((queue) => queue.getWaitingCount()));
    waiting = counts.reduce((sum, count) => sum + count, 0);
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
    /** What each lane has before it: a lane that is stuck on its only job shows that job and its age. */
    lanes: () => Promise.all(queues.map((queue) => readLane(queue, connection))),
  };
}

export type Depth = ReturnType<typeof watchDepth>;

/** What each lane has before it, for who asks now and then: nothing is asked of the queue meanwhile. */
export function openLaneDepths(
  connection: QueueConnection,
  { lanes, timeout }: { lanes: number; timeout: number },
) {
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue<unknown>(connection, laneName(lane)));
  return {
    /** In the order of the lanes; undefined: the queue did not say within `timeout` milliseconds. */
    async read(): Promise<LaneDepth[] | undefined> {
      if (!connection.ready()) return undefined;
      const reading = Promise.all(queues.map((queue) => readLane(queue, connection)));
      return within(timeout, reading).catch(() => undefined);
    },
    async stop() {
      await Promise.all(queues.map((queue) => queue.close().catch(() => {})));
    },
  };
}

async function readLane(queue: Queue, connection: QueueConnection): Promise<LaneDepth> {
  const [{ waiting = 0, active = 0 }, oldest] = await Promise.all([
    queue.getJobCounts('waiting', 'active'),
    waitingIn(connection, queue).oldest(),
  ]);
  const age = oldest ? (Date.now() - oldest.timestamp) / 1000 : 0;
  return { lane: queue.name, depth: waiting + active, oldestSeconds: Math.max(0, age) };
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

/** Looks now and then for how long the oldest envelope of each lane has been there, and says so when it is too long. */
export function watchOldest(
  connection: QueueConnection,
  { lanes, maxAgeMs, log }: { lanes: number; maxAgeMs: number; log: Log },
) {
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue<unknown>(connection, laneName(lane)));
  const searches = queues.map((queue) => waitingIn(connection, queue));
  /** By lane, in the order of the lanes. */
  let oldest: { lane: number; envelope: string; acceptedAt: number }[] = [];
  const warned = new Map<number, { envelope: string; at: number }>();

  // While the queue is away what is known of it stands, and grows older.
  const looks = poll(LOOK_MS, async () => {
    if (!connection.ready()) return;
    const found = await Promise.all(searches.map((waiting) => waiting.oldest()));
    oldest = found.flatMap((job, lane) =>
      job ? [{ lane, envelope: job.id, acceptedAt: job.timestamp }] : [],
    );
    warn();
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
    /** Seconds; 0: the lanes are empty. */
    age: () => Math.max(0, ...aged().map(({ seconds }) => seconds)),
  };
}

export type Oldest = ReturnType<typeof watchOldest>;

const MEMORY_REFRESH_MS = 200;

/** How full Redis is: asked for five times a second, so that a request can be refused at once. */
export function watchMemory({ redis }: QueueConnection) {
  let used = 0;
  // While Redis is away, or does not tell, adding fails by itself.
  const looks = poll(MEMORY_REFRESH_MS, async () => {
    if (redis?.status !== 'ready') return;
    const text = await redis.info('memory');
    const read = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(text)?.[1] ?? 0);
    const most = read('maxmemory');
    used = most > 0 ? read('used_memory') / most : 0;
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
  };
}
