import { jobs } from '../jobs/catalog.ts';
import { newId } from '../platform/ids.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import { type JobAnswer, openPostgresAdder, openRedisAdder, type ShardAdder } from './add-jobs.ts';
import { limitLane, openLane, optionsOfLane, type QueueAccess, queuePool } from './bullmq-queues.ts';
import type { StoreProducer, StoreProducerOptions } from './lane-store.ts';
import { everyShard, type LaneEntry, laneName, QueueUnavailable, shardOfLane } from './lanes.ts';
import { countAdditions } from './loss.ts';
import { pingRedis, type RedisClient, whenDisconnected } from './open-redis.ts';
import { addWhereTheLanesAre, waitForReplicas } from './replicas.ts';
import { createServerClock, readPostgresClock, readRedisClock } from './server-clock.ts';
import { encodeEnvelope, type WireEnvelope } from './wire.ts';

/**
 * A finished job is removed at once, because it would keep personal data of users who are deleted later. Its id
 * remains in the ledger.
 */
const OPTIONS = { attempts: 1, removeOnComplete: true };

/**
 * Adds envelopes to the lanes of a shard in one atomic step (one MULTI on Redis, one statement on Postgres), and to
 * several shards concurrently in one step each.
 *
 * An atomic step may store nothing and still succeed, for example after SCRIPT FLUSH, so the answer for every entry is
 * checked before anything is acknowledged. `timeout` is in milliseconds: without it, BullMQ waits indefinitely for a
 * connection.
 */
export function createLaneProducer(
  access: QueueAccess,
  { timeout, log, writes }: StoreProducerOptions,
): StoreProducer {
  const own = access.replication?.open();
  const { layout } = access;
  const shards = everyShard(layout.shards).map((shard) => openShard(shard, { access, own, timeout }));

  /**
   * Lanes known to be limited to one active job. A Redis that comes back empty has lost the limits. It would hand out
   * the jobs of a lane to several workers at once until one of them sets the limit again.
   */
  const limited = new Set<number>();
  for (const redis of [access.redis, own]) if (redis) whenDisconnected(redis, () => limited.clear());

  async function limitLanes(entries: LaneEntry[]): Promise<void> {
    const lanes = [...new Set(entries.map(({ lane }) => lane))].filter((lane) => !limited.has(lane));
    await Promise.all(lanes.map((lane) => limitLane(access, lane)));
    for (const lane of lanes) limited.add(lane);
  }

  /** Shards whose last add failed, so that the cause is logged once. */
  const failing = new Set<number>();

  async function addTo(shard: number, entries: LaneEntry[]): Promise<void> {
    try {
      await addOnce(shard, entries);
    } catch (error) {
      writes?.noteFailure(error);
      if (!failing.has(shard))
        log.warn(
          { err: (error as Error).cause ?? error, shard },
          'objects could not be added to the queue; their requests get 503',
        );
      failing.add(shard);
      throw error;
    }
    writes?.noteSuccess();
    if (failing.delete(shard)) log.info({ shard }, 'adding objects to the queue works again');
  }

  async function addOnce(shard: number, entries: LaneEntry[]): Promise<void> {
    const { adder, replicas, clock } = shards[shard]!;
    if (!access.ready() || (own && own.status !== 'ready'))
      throw new QueueUnavailable('the queue is not connected');
    const timestamp = await clock.now();
    const added = entries.map(({ lane, id, envelope }) => ({
      queueName: laneName(lane),
      id,
      name: envelope.fence ? jobs.fence : jobs.envelope,
      data: JSON.stringify(encodeEnvelope(envelope)),
      opts: { jobId: id, timestamp, ...OPTIONS },
    }));
    const once = async () => requireAllStored(await adder.add(added), added.length);
    const addAll = (): Promise<unknown> => (own ? addWhereTheLanesAre(own, once, timeout) : once());
    try {
      if (replicas) await withTimeout(timeout, replicas.caughtUp());
      await withTimeout(timeout, limitLanes(entries));
      await withTimeout(timeout, addAll());
    } catch (error) {
      if (!isScriptMissing(error))
        throw new QueueUnavailable('the queue did not store the objects', { cause: error });
      // After a restart or SCRIPT FLUSH the server has forgotten BullMQ's scripts, and a transaction cannot
      // load them; a plain add does.
      log.warn('Redis had lost the scripts of the queue; loaded them again');
      try {
        await withTimeout(timeout, loadScripts(entries[0]!.lane));
        await withTimeout(timeout, addAll());
      } catch (second) {
        throw new QueueUnavailable('the queue did not store the objects', { cause: second });
      }
    }
  }

  /**
   * Adds an empty envelope, which makes the server load the script. A plain add of an entry of a fence would give this
   * entry another position than the other entries of the fence.
   */
  async function loadScripts(lane: number): Promise<void> {
    const queue = openLane<WireEnvelope>(access, lane);
    const nothing = { requests: [], objects: [] };
    const opts = { jobId: newId(), ...OPTIONS };
    await queue.add(jobs.envelope, nothing, opts).finally(() => queue.close());
  }

  return {
    async add(entries) {
      if (layout.shards === 1) return addTo(0, entries);
      const parts = new Map<number, LaneEntry[]>();
      for (const entry of entries) {
        const shard = shardOfLane(layout, entry.lane);
        parts.set(shard, [...(parts.get(shard) ?? []), entry]);
      }
      await Promise.all([...parts].map(([shard, its]) => addTo(shard, its)));
    },
    additions: shards.map(({ additions }) => additions),
    async ping() {
      if (own) await pingRedis(own, layout.shards);
      await Promise.all(shards.map(({ adder }) => adder.waitUntilReady()));
    },
    async stop() {
      for (const { adder } of shards) await adder.close();
      own?.disconnect();
    },
  };
}

interface Opening {
  access: QueueAccess;
  /** Client that only the producer uses; undefined unless it waits for replicas. */
  own: RedisClient | undefined;
  timeout: number;
}

/** Opens the producer of one shard. */
function openShard(shard: number, { access, own, timeout }: Opening) {
  const { layout, replication } = access;
  const redis = own ?? access.redis;
  const options = optionsOfLane(access, shard * layout.lanes);
  const additions = countAdditions({ shard, shards: layout.shards });
  const replicas = own && waitForReplicas(own, { replicas: replication!.replicas, timeout, shard });
  const adder: ShardAdder = redis
    ? openRedisAdder({ ...options, connection: redis }, { additions, replicas })
    : openPostgresAdder(options);
  const clock = createServerClock(() =>
    redis ? readRedisClock(redis, shard) : readPostgresClock(queuePool(access)),
  );
  return { adder, additions, replicas, clock };
}

/** @throws the first error among the answers, also if the answer for a job is missing or an error code */
function requireAllStored(answers: JobAnswer[], jobCount: number): void {
  for (let index = 0; index < jobCount; index++) {
    const [error, id] = answers[index] ?? [new Error('no answer'), -1];
    if (error) throw error;
    if (typeof id === 'number' && id < 0) throw new Error(`refused with code ${id}`);
  }
}

function isScriptMissing(error: unknown): boolean {
  return String((error as Error)?.message).includes('NOSCRIPT');
}
