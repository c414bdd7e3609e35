import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import { fillQueue, whileWorkersStand } from '../fill-queue.ts';
import type { Fleets } from '../fleets.ts';
import type { Size } from '../size.ts';

/** Measures the memory of Redis for waiting envelopes, relative to the bytes of their requests. */
export function queueMemoryRow(fleets: Fleets, environment: Environment, size: Size): BenchRow {
  async function measure(): Promise<Figure> {
    const ours = await fleets.ours();
    const redis = new Redis(environment.redisUrl);
    try {
      return await whileWorkersStand(ours, async () => {
        const before = await usedMemory(redis);
        const { bytes } = await fillQueue(ours, {
          objects: 75,
          users: size.users,
          isEnough: (sent) => sent.bytes >= size.waitingBytes,
        });
        const used = (await usedMemory(redis)) - before;
        return { value: used / bytes, unit: 'x', detail: { rows: 1, sent_bytes: bytes, redis_bytes: used } };
      });
    } finally {
      redis.disconnect();
      // The next row begins with empty lanes.
      let seen = -1;
      for (let now = await ours.observer.applied(); now !== seen; now = await ours.observer.applied()) {
        seen = now;
        await sleep(1500);
      }
    }
  }
  return {
    name: 'queue-memory',
    what: 'memory that Redis needs for what waits in it, over the bytes of the bodies that brought it',
    measure,
  };
}

async function usedMemory(redis: Redis): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
}
