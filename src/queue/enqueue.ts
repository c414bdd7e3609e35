import { setTimeout as sleep } from 'node:timers/promises';
import type { AcceptedObject, EnvelopeRequest } from '../jobs/envelope.ts';
import { createFlood, createNeighbours } from './flush-turns.ts';
import { inPresentLanes } from './installation.ts';
import { type LaneEntry, type LaneProducer, QueueUnavailable } from './lanes.ts';
import { MAX_ENVELOPE_BYTES, pack } from './pack.ts';
import { createShardCommit, LINGER, type ShardCommit, type Waiting } from './shard-commit.ts';

export interface GroupCommitOptions {
  /** Of each shard. */
  lanes: number;
  /** Most objects in one envelope. */
  maxEnvelopeObjects: number;
  /** Most objects held in memory, and most bytes of them; with more, requests are refused. */
  maxPendingObjects: number;
  maxPendingBytes: number;
  /** Jobs that wait in the lanes of a shard, as last seen. */
  backlog(shard: number): number;
  /**
   * Flushes on their way at once: with two, those who flood have their own. One where adds that are made at once may take
   * their places in several lanes in different orders, as on Postgres.
   */
  flushesAtOnce?: 1 | 2;
}

/** Waiting jobs per lane from which on the workers count as behind. */
const BEHIND = 3;

/**
 * Requests that arrive while a flush is on its way wait and leave together in the next one: one durable add
 * for all of them. Unless the workers are behind there is no timer: alone, a request leaves at once. Workspaces have their
 * turns (src/queue/flush-turns.ts), and while the workers are behind those who flood wait for each other alone. Each shard
 * has flushes of its own: one that does not answer keeps nobody else waiting. Who floods one takes the time of this process
 * from those of the others as well.
 */
export function createGroupCommit(producer: LaneProducer, options: GroupCommitOptions) {
  const { placing } = producer;
  /** By shard, as far as one was needed. */
  const shards: ShardCommit[] = [];
  let pendingObjects = 0;
  let pendingBytes = 0;
  /** Of all shards. */
  const neighbours = createNeighbours();
  const flood = createFlood();

  const isBehind = (shard: number) => options.backlog(shard) >= BEHIND * options.lanes;
  const lookForFlood = () =>
    flood.look((owner) => neighbours.areThere() && isBehind(placing?.now(owner) ?? 0));

  const shardAt = (shard: number): ShardCommit => {
    shards[shard] ??= createShardCommit(shard, {
      ...{ producer, placing, options, neighbours, flood, isBehind, lookForFlood },
      fillsEnvelope: () => pendingObjects >= options.maxEnvelopeObjects || pendingBytes >= MAX_ENVELOPE_BYTES,
      enter,
      settle,
    });
    return shards[shard];
  };

  /**
   * Resolves when the objects are on disk.
   * @param bytes of the objects' JSON text, about; they are shared over the objects
   * @returns the envelopes of its flush, of which `envelopesOf` tells its own
   * @throws {QueueUnavailable} when that is not known, or at once when too much is waiting already.
   */
  function enqueue(request: EnvelopeRequest, objects: AcceptedObject[], bytes: number): Promise<LaneEntry[]> {
    return wait({ owner: request.workspace_id, request, objects, count: objects.length, bytes });
  }

  /**
   * As `enqueue`, for envelopes that have been packed, and perhaps added, before: those that the queue holds already
   * stay as they are.
   */
  function add(entries: LaneEntry[], bytes: number): Promise<LaneEntry[]> {
    const count = entries.reduce((sum, { envelope }) => sum + envelope.objects.length, 0);
    const owner = entries[0]?.envelope.requests[0]?.workspace_id ?? '';
    return wait({ owner, entries: inPresentLanes(entries, options.lanes), count, bytes });
  }

  function wait(what: Omit<Waiting, 'resolve' | 'reject'>): Promise<LaneEntry[]> {
    const { count, bytes } = what;
    if (pendingObjects + count > options.maxPendingObjects) {
      return Promise.reject(new QueueUnavailable('too many objects are waiting for the queue'));
    }
    if (pendingBytes + bytes > options.maxPendingBytes) {
      return Promise.reject(new QueueUnavailable('too many bytes are waiting for the queue'));
    }
    pendingObjects += count;
    pendingBytes += bytes;
    return new Promise((resolve, reject) => enter({ ...what, resolve, reject }));
  }

  /** Into the line of its shard. What moves to another waits until it is there. */
  function enter(one: Waiting): void {
    const shard = placing ? placing.now(one.owner) : 0;
    if (shard !== undefined) {
      shardAt(shard).enter(one);
      return;
    }
    placing!.settled(one.owner).then(
      (known) => shardAt(known).enter(one),
      (error: Error) => settle([one], error),
    );
  }

  function settle(batch: Waiting[], result: LaneEntry[] | Error): void {
    for (const { count, bytes, resolve, reject } of batch) {
      pendingObjects -= count;
      pendingBytes -= bytes;
      if (result instanceof Error) reject(result);
      else resolve(result);
    }
  }

  return {
    enqueue,
    add,
    /** One request in envelopes of its own, which are not added yet. */
    pack: (request: EnvelopeRequest, objects: AcceptedObject[], bytes: number): LaneEntry[] =>
      pack([{ request, objects, bytes }], options.lanes, options.maxEnvelopeObjects),
    /** Whether a workspace has a large part of what is sent, while the workers are behind and others send to its shard as well. */
    isFlooding: (workspaceId: string) => shards.some((shard) => shard?.isFlooding(workspaceId)),
    /** The shard that a workspace is known to have; undefined: it is not known yet, or there is one alone. */
    shardOf: (workspaceId: string) => placing?.now(workspaceId),
    /** Objects that wait for the queue, those of the flush on its way included. */
    pending: () => pendingObjects,
    /** Bytes of them. */
    pendingBytes: () => pendingBytes,
    /** Resolves when nothing waits any more. */
    async drain(): Promise<void> {
      while (pendingObjects > 0 || shards.some((shard) => shard?.isFlushing())) {
        await Promise.all(shards.map((shard) => shard?.flushed()));
        // What is held while its workspace moves is in no flush.
        if (pendingObjects > 0) await sleep(LINGER);
      }
    },
  };
}

export type GroupCommit = ReturnType<typeof createGroupCommit>;
