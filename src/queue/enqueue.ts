import { setTimeout as sleep } from 'node:timers/promises';
import type { AcceptedObject, AcceptedRequest } from '../jobs/envelope.ts';
import { BEHIND, type LaneEntry, type LaneProducer, QueueUnavailable, type ShardSelection } from './lanes.ts';
import { MAX_ENVELOPE_BYTES, pack } from './pack.ts';
import { traceFlush } from './spans.ts';
import { FlushTurns, type Loose, Neighbours, packablesOf, type WaitingRequest } from './turns.ts';

export interface GroupCommitOptions {
  /** Number of lanes in each shard. */
  lanes: number;
  /** Maximum number of objects in one envelope. */
  maxEnvelopeObjects: number;
  /** Maximum number of objects and of bytes held in memory. Requests above a limit are refused. */
  maxPendingObjects: number;
  maxPendingBytes: number;
  /** Jobs that wait in the lanes of a shard, as last read. */
  backlog(shard: number): number;
}

interface EnqueueOptions {
  /** Approximate bytes of the objects' JSON text, divided evenly among the objects. */
  bytes: number;
  /** The response waits until the objects have taken effect, so no other request shares their envelopes. */
  isAwaited?: boolean;
}

/** Waiting requests of one workspace in this process. */
interface Pending {
  requests: number;
  objects: number;
  bytes: number;
}

/**
 * The waiting requests of one workspace may be at most as large as the part of the limit that is free. So one workspace
 * alone uses at most half of the memory, two use a third each, and another workspace always has room.
 */
export function createGroupCommit(producer: LaneProducer, options: GroupCommitOptions) {
  const { placing } = producer;
  /** One group commit per shard, created at first use. */
  const shards: ShardCommit[] = [];
  let pendingObjects = 0;
  let pendingBytes = 0;
  /** Waiting requests by workspace. */
  const pending = new Map<string, Pending>();
  /** Shared by all shards. */
  const neighbours = new Neighbours();

  const isBehind = (shard: number) => options.backlog(shard) >= BEHIND * options.lanes;

  const shardAt = (shard: number): ShardCommit => {
    shards[shard] ??= createShardCommit(shard, {
      ...{ producer, placing, options, neighbours, isBehind },
      fillsEnvelope: () => pendingObjects >= options.maxEnvelopeObjects || pendingBytes >= MAX_ENVELOPE_BYTES,
      enter,
      settle,
    });
    return shards[shard];
  };

  /**
   * Resolves when the objects are on disk.
   * @returns the envelopes of the whole flush; `envelopesOf` selects those of the request
   * @throws {QueueUnavailable} if the queue does not confirm the add, or at once if too much is waiting already.
   */
  function enqueue(
    request: AcceptedRequest,
    objects: AcceptedObject[],
    { bytes, isAwaited = false }: EnqueueOptions,
  ): Promise<LaneEntry[]> {
    return wait({ owner: request.workspace_id, request, objects, count: objects.length, bytes, isAwaited });
  }

  /**
   * Does the same as `enqueue` for envelopes that are packed already and may have been added before. Envelopes that
   * the queue holds already are not changed.
   */
  function add(entries: LaneEntry[], bytes: number): Promise<LaneEntry[]> {
    const count = entries.reduce((sum, { envelope }) => sum + envelope.objects.length, 0);
    const owner = entries[0]?.envelope.requests[0]?.workspace_id ?? '';
    return wait({ owner, entries, count, bytes });
  }

  function wait(what: Omit<WaitingRequest, 'resolve' | 'reject'>): Promise<LaneEntry[]> {
    const { owner, count, bytes } = what;
    if (pendingObjects + count > options.maxPendingObjects) {
      return Promise.reject(
        new QueueUnavailable('too many objects are waiting for the queue', { limit: 'pending_objects' }),
      );
    }
    if (pendingBytes + bytes > options.maxPendingBytes) {
      return Promise.reject(
        new QueueUnavailable('too many bytes are waiting for the queue', { limit: 'pending_bytes' }),
      );
    }
    const own = pending.get(owner);
    // The first request of a workspace is accepted if there is room, even if it takes more than half of the limit.
    if (own && isOverShare(own, count, bytes)) {
      return Promise.reject(
        new QueueUnavailable(
          'the workspace has more objects or bytes waiting in this process than its buffer has free',
          {
            limit: 'share',
          },
        ),
      );
    }
    pendingObjects += count;
    pendingBytes += bytes;
    if (own) {
      own.requests++;
      own.objects += count;
      own.bytes += bytes;
    } else pending.set(owner, { requests: 1, objects: count, bytes });
    return new Promise((resolve, reject) => enter({ ...what, resolve, reject }));
  }

  /**
   * Whether the workspace would exceed its share: its waiting requests, with the new one, would be larger than the free
   * part of the limit.
   */
  function isOverShare({ objects, bytes }: Pending, more: number, moreBytes: number): boolean {
    return (
      objects + more > options.maxPendingObjects - pendingObjects - more ||
      bytes + moreBytes > options.maxPendingBytes - pendingBytes - moreBytes
    );
  }

  /** Queues a request for its shard. While its workspace moves to another shard, the request waits for the move. */
  function enter(one: WaitingRequest): void {
    const shard = placing ? placing.now(one.owner) : 0;
    if (shard !== undefined) {
      shardAt(shard).enter(one);
      return;
    }
    placing!.settled(one.owner).then(
      (settledShard) => shardAt(settledShard).enter(one),
      (error: Error) => settle([one], error),
    );
  }

  function settle(batch: WaitingRequest[], result: LaneEntry[] | Error): void {
    for (const { owner, count, bytes, resolve, reject } of batch) {
      pendingObjects -= count;
      pendingBytes -= bytes;
      const own = pending.get(owner)!;
      own.requests--;
      own.objects -= count;
      own.bytes -= bytes;
      if (own.requests === 0) pending.delete(owner);
      if (result instanceof Error) reject(result);
      else resolve(result);
    }
  }

  return {
    enqueue,
    add,
    /** Number of lanes in each shard. */
    lanes: options.lanes,
    /** Packs one request into envelopes of its own without adding them. */
    pack: (request: AcceptedRequest, objects: AcceptedObject[], bytes: number): LaneEntry[] =>
      pack([{ request, objects, bytes }], options.lanes, options.maxEnvelopeObjects),
    /** The shard of a workspace; undefined if it is not known yet or there is only one shard. */
    shardOf: (workspaceId: string) => placing?.now(workspaceId),
    /** Number of objects that wait for the queue, including the running flush. */
    pending: () => pendingObjects,
    /** Bytes of the waiting objects. */
    pendingBytes: () => pendingBytes,
    /** Resolves when all waiting requests are finished. */
    async drain(): Promise<void> {
      while (pendingObjects > 0 || shards.some((shard) => shard?.isFlushing())) {
        await Promise.all(shards.map((shard) => shard?.flushed()));
        // Requests of a workspace that moves are held outside of the flushes, so they are checked separately.
        if (pendingObjects > 0) await sleep(LINGER);
      }
    },
  };
}

export type GroupCommit = ReturnType<typeof createGroupCommit>;

/**
 * Limits of one flush. A single request may exceed the limit of bytes. They bound the size of one command and the
 * time that a later request waits. 4 MB take 80 to 130 ms on Redis and 300 to 400 ms on Postgres, of the 700 ms that
 * QUEUE_TIMEOUT_MS allows for an add; 12 MB take Postgres 750 ms.
 */
const MAX_FLUSH_OBJECTS = 16_000;
const MAX_FLUSH_BYTES = 4_194_304;

/**
 * Milliseconds for which a flush waits for more requests while the workers are behind. The requests would otherwise
 * wait in their lane, and the cost for workers is per envelope: fewer and larger envelopes let them catch up.
 */
const LINGER = 2;

interface ShardOptions {
  producer: LaneProducer;
  placing: ShardSelection | undefined;
  options: { lanes: number; maxEnvelopeObjects: number };
  neighbours: Neighbours;
  /** Whether the workers of a shard are behind: `BEHIND` or more jobs wait per lane. */
  isBehind(shard: number): boolean;
  fillsEnvelope(): boolean;
  /** Queues a request for the current shard of its workspace. */
  enter(one: WaitingRequest): void;
  settle(batch: WaitingRequest[], result: LaneEntry[] | Error): void;
}

type ShardCommit = ReturnType<typeof createShardCommit>;

/** Runs the flushes to the lanes of one shard, one after the other. */
export function createShardCommit(shard: number, { producer, placing, options, ...shared }: ShardOptions) {
  const { lanes, maxEnvelopeObjects } = options;
  const { neighbours, settle } = shared;
  const waiting = new FlushTurns<WaitingRequest>(neighbours);
  let flushing: Promise<void> | undefined;

  async function flushAll(): Promise<void> {
    // Let the requests of the current turn of the event loop join the first flush.
    await new Promise(setImmediate);
    while (!waiting.isEmpty()) {
      if (shared.isBehind(shard) && !shared.fillsEnvelope()) await sleep(LINGER);
      let batch = waiting.take({ objects: MAX_FLUSH_OBJECTS, bytes: MAX_FLUSH_BYTES });
      try {
        if (placing) {
          await placing.fresh(shard);
          batch = leaveOutMoved(batch, placing);
          if (batch.length === 0) continue;
        }
        const entries = entriesOf(batch);
        const moved = await traceFlush(entries, () => add(entries));
        settle(moved.size === 0 ? batch : batch.filter(({ owner }) => !moved.has(owner)), entries);
        if (moved.size > 0)
          settle(
            batch.filter(({ owner }) => moved.has(owner)),
            new QueueUnavailable(MOVED),
          );
      } catch (error) {
        // Requests that arrived during this flush would have to wait as long again, so they are refused with it.
        settle([...batch, ...waiting.takeAll()], error as Error);
      }
    }
    flushing = undefined;
  }

  /** Removes requests whose workspace has moved to another shard. They wait for a flush of that shard. */
  function leaveOutMoved(batch: WaitingRequest[], { now }: ShardSelection): WaitingRequest[] {
    const isHere = ({ owner }: WaitingRequest) => now(owner) === shard;
    if (batch.every(isHere)) return batch;
    for (const one of batch) if (!isHere(one)) shared.enter(one);
    return batch.filter(isHere);
  }

  function entriesOf(batch: WaitingRequest[]): LaneEntry[] {
    if (!batch.some(({ entries }) => entries)) return packLoose(batch as Loose[]);
    const loose = batch.filter(({ entries }) => !entries) as Loose[];
    return [...packLoose(loose), ...batch.flatMap(({ entries }) => entries ?? [])];
  }

  const packLoose = (loose: Loose[]): LaneEntry[] => pack(packablesOf(loose), lanes, maxEnvelopeObjects);

  /** @returns workspaces that have moved to another shard meanwhile; their entries are not accepted */
  async function add(entries: LaneEntry[]): Promise<ReadonlySet<string>> {
    if (placing) return placing.addTo(shard, entries);
    await producer.add(entries);
    return NOBODY;
  }

  return {
    enter(one: WaitingRequest): void {
      neighbours.meet(one.owner);
      waiting.push(one);
      flushing ??= flushAll();
    },
    isFlushing: () => flushing !== undefined,
    flushed: () => flushing,
  };
}

const NOBODY: ReadonlySet<string> = new Set();

const MOVED = 'the workspace has moved to another shard meanwhile';
