import type { Log } from '../platform/log.ts';
import type { Pool } from '../store/database.ts';
import type { Home } from '../store/workspace-shards.ts';
import type { QueueConnection } from './connection.ts';
import { type CountingProducer, createLaneProducer } from './lane-producer.ts';
import type { LaneProducer } from './lanes.ts';
import { openMoves } from './moves.ts';
import { createPlacing } from './placing.ts';

/** Where a process hands its envelopes to: lanes of one shard, counted from 0, whose the workspace of each says. */
export interface PlacedProducer extends LaneProducer, Pick<CountingProducer, 'additions' | 'stop'> {
  /** The queue has lost something. */
  forget(): void;
  /** The shard of a workspace, and its how many-th that is. @throws {QueueUnavailable} */
  homeOf(workspaceId: string): Promise<Home>;
  /** Where it was last heard of, or 0; absent: there is one shard. @throws {QueueUnavailable} */
  lastShardOf?(workspaceId: string): Promise<number>;
}

const FIRST: Home = { shard: 0, moves: 0 };

export interface Opening {
  pool: Pool;
  /** Milliseconds for an add. */
  timeout: number;
  log: Log;
}

/** The producer of a process. With one shard nobody is asked where a workspace is. */
export function openProducer(connection: QueueConnection, { pool, timeout, log }: Opening): PlacedProducer {
  const producer = createLaneProducer(connection, timeout, log);
  const { additions, stop } = producer;
  const { redis, layout } = connection;
  if (layout.shards === 1 || !redis)
    return { add: producer.add, additions, stop, forget() {}, homeOf: async () => FIRST };
  const moves = openMoves(redis, timeout);
  const placing = createPlacing({ pool, moves, producer, ...layout });
  return { ...placing, additions, stop };
}
