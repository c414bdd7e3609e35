import type { Queue } from 'bullmq';
import type { Service } from '../lifecycle.ts';
import type { QueueConnection } from './connection.ts';
import { laneName } from './lanes.ts';
import { openQueue } from './open-queue.ts';
import { waitingIn } from './waiting.ts';

const REFRESH_MS = 200;

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
  let refreshing = false;

  async function refresh(): Promise<void> {
    if (refreshing || !connection.ready()) return;
    refreshing = true;
    try {
      const counts = await Promise.all(queues.map((queue) => queue.getWaitingCount()));
      waiting = counts.reduce((sum, count) => sum + count, 0);
    } catch {
      // The queue is away: the last figure stands, and adding fails by itself.
    } finally {
      refreshing = false;
    }
  }

  const timer = setInterval(refresh, REFRESH_MS);
  timer.unref();

  const service: Service = {
    name: 'queue depth',
    async stop() {
      clearInterval(timer);
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

async function readLane(queue: Queue, connection: QueueConnection): Promise<LaneDepth> {
  const [{ waiting = 0, active = 0 }, inWork, next] = await Promise.all([
    queue.getJobCounts('waiting', 'active'),
    queue.getActive(0, 0),
    waitingIn(connection, queue).first(),
  ]);
  const oldest = next ? [...inWork, next] : inWork;
  const ages = oldest.map(({ timestamp }) => (Date.now() - timestamp) / 1000);
  return { lane: queue.name, depth: waiting + active, oldestSeconds: Math.max(0, ...ages) };
}
