import type { Service } from '../platform/lifecycle.ts';
import { poll } from '../platform/poll.ts';
import type { Redis } from './bullmq.ts';
import type { QueueConnection } from './connection.ts';
import { type RedisClient, serverOf } from './open-redis.ts';
import { everyShard, markOf } from './shards.ts';

/** Milliseconds for which a look counts as a look at what is. */
const FRESH_MS = 5000;

const MEMORY_REFRESH_MS = 200;

/** Bytes that a server uses and may use, by its INFO; `most` is 0 where that has no bound. */
export function memoryOf(info: string): { used: number; most: number } {
  const read = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
  return { used: read('used_memory'), most: read('maxmemory') };
}

/** How full the server of each shard is: asked for five times a second, so that a request can be refused at once. */
export function watchMemory({ redis, layout }: QueueConnection) {
  const shards = everyShard(layout.shards).map(() => ({ used: 0, seenAt: Number.NEGATIVE_INFINITY }));

  /** Shards of one server are told by one question. */
  async function look(of: RedisClient): Promise<void> {
    const servers = new Map<Redis, number[]>();
    for (const shard of everyShard(layout.shards)) {
      const server = serverOf(of, markOf(shard));
      if (server) servers.set(server, [...(servers.get(server) ?? []), shard]);
    }
    const asked = [...servers].map(async ([server, its]) => {
      const { used, most } = memoryOf(await server.info('memory'));
      for (const shard of its)
        shards[shard] =
          most > 0 ? { used: used / most, seenAt: performance.now() } : { ...shards[shard]!, used: 0 };
    });
    const [failed] = (await Promise.allSettled(asked)).filter((one) => one.status === 'rejected');
    if (failed) throw failed.reason;
  }

  // While Redis is away, or does not tell, adding fails by itself.
  const looks = poll(MEMORY_REFRESH_MS, async () => {
    if (redis?.status === 'ready') await look(redis);
  });
  const service: Service = {
    name: 'queue memory',
    async stop() {
      void looks.stop();
    },
  };
  return {
    ...service,
    /**
     * Percent of its maxmemory that the Redis of a shard has used, or the fullest of all, at most 200 ms ago. It is 0
     * where there is no maxmemory, or the Redis does not tell.
     */
    usedPercent: (shard?: number) =>
      100 * (shard === undefined ? Math.max(...shards.map(({ used }) => used)) : shards[shard]!.used),
    /** Whether that is known: each Redis has a maxmemory, and has told it a moment ago. */
    known: () => shards.every(({ seenAt }) => performance.now() - seenAt < FRESH_MS),
  };
}
