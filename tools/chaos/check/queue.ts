import { readConfig } from '../../../src/platform/config.ts';
import { openLane } from '../../../src/queue/bullmq-queues.ts';
import { connectProducer } from '../../../src/queue/connection.ts';
import { everyLane, laneCount } from '../../../src/queue/lanes.ts';
import type { Fleet } from '../../../test/setup/fleet.ts';

export interface QueueCounts {
  /** Jobs in all lanes that are still to be applied. */
  waiting: number;
  /** Jobs that BullMQ has given up. */
  failed: number;
  /** Reasons of the first few failed jobs. */
  reasons: string[];
}

/**
 * Counts the jobs in the lanes of a fleet directly in the queue. Each call opens a connection of its own and
 * closes it.
 */
export async function countQueue({ env }: Fleet): Promise<QueueCounts> {
  const config = readConfig(env);
  const connection = connectProducer(config, config.DATABASE_URL);
  const queues = everyLane(laneCount(config)).map((lane) => openLane(connection, lane));
  try {
    if (connection.redis && connection.redis.status !== 'ready') {
      await new Promise((resolve, reject) => {
        connection.redis!.once('ready', resolve);
        connection.redis!.once('close', () => reject(new Error('Redis does not answer')));
      });
    }
    const counts = await Promise.all(
      queues.map((queue) => queue.getJobCounts('waiting', 'active', 'delayed', 'prioritized', 'failed')),
    );
    const sum = (names: string[]) =>
      counts.reduce((total, count) => total + names.reduce((some, name) => some + (count[name] ?? 0), 0), 0);
    return {
      waiting: sum(['waiting', 'active', 'delayed', 'prioritized']),
      failed: sum(['failed']),
      reasons: (await Promise.all(queues.map((queue) => queue.getFailed(0, 2)))).flatMap((jobs) =>
        jobs.map(({ id, name, failedReason }) => `${name} ${id}: ${failedReason}`),
      ),
    };
  } finally {
    await Promise.all(queues.map((queue) => queue.close().catch(() => {})));
    await connection.stop().catch(() => {});
  }
}
