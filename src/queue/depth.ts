import type { Service } from '../lifecycle.ts';
import type { QueueConnection } from './connection.ts';
import { laneName } from './lanes.ts';
import { openQueue } from './open-queue.ts';

const REFRESH_MS = 200;

export interface LaneDepth {
  lane: string;
  /** Jobs. */
  waiting: number;
  /** Age of the oldest job that waits; 0: none does. */
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
    async lanes(): Promise<LaneDepth[]> {
      return Promise.all(
        queues.map(async (queue) => {
          const [count, [oldest]] = await Promise.all([queue.getWaitingCount(), queue.getWaiting(0, 0)]);
          const oldestSeconds = oldest ? Math.max(0, (Date.now() - oldest.timestamp) / 1000) : 0;
          return { lane: queue.name, waiting: count, oldestSeconds };
        }),
      );
    },
  };
}

export type Depth = ReturnType<typeof watchDepth>;
