import type { Pool } from 'pg';
import { type RedisClient, serverOfShard } from './open-redis.ts';

/** Milliseconds for which the difference between the server's clock and this process's monotonic clock is used. */
const KNOWN_MS = 30_000;

interface ServerClock {
  /** Epoch milliseconds; by the clock of this process while the server does not answer. */
  now(): Promise<number>;
}

/**
 * The clock of the server that holds a shard of the queue. Jobs are stamped by it, so that the age of a job does not
 * depend on the clocks of the processes that add and read it.
 */
export function createServerClock(read: () => Promise<number>): ServerClock {
  let ahead: number | undefined;
  let readAt = Number.NEGATIVE_INFINITY;

  async function refresh(): Promise<void> {
    const sentAt = performance.now();
    const now = await read();
    readAt = performance.now();
    ahead = now - (sentAt + readAt) / 2;
  }

  return {
    async now() {
      if (performance.now() - readAt > KNOWN_MS) await refresh().catch(() => {});
      return Math.round(ahead === undefined ? Date.now() : performance.now() + ahead);
    },
  };
}

/** The clock of the Redis that holds a shard, in epoch milliseconds. */
export async function readRedisClock(redis: RedisClient, shard: number): Promise<number> {
  const [seconds, microseconds] = await serverOfShard(redis, shard).time();
  return Number(seconds) * 1000 + Number(microseconds) / 1000;
}

/** The clock of Postgres, in epoch milliseconds. */
export async function readPostgresClock(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ now: number }>(
    'select extract(epoch from clock_timestamp())::float8 * 1000 as now',
  );
  return rows[0]!.now;
}
