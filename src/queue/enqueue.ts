import { setTimeout as sleep } from 'node:timers/promises';
import type { AcceptedObject, EnvelopeRequest } from '../jobs/envelope.ts';
import { inPresentLanes } from './installation.ts';
import { BEHIND, type LaneEntry, type LaneProducer, type Placing, QueueUnavailable } from './lanes.ts';
import { MAX_ENVELOPE_BYTES, pack } from './pack.ts';
import { traceFlush } from './spans.ts';
import { FlushTurns, type Loose, Neighbours, packablesOf, type WaitingRequest } from './turns.ts';

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
}

export interface EnqueueOptions {
  /** Bytes of the objects' JSON text, about; they are shared over the objects. */
  bytes: number;
  /** The response waits until the objects have taken effect: no other request shares their envelopes. */
  isAwaited?: boolean;
}

/** What one workspace has waiting for the queue in this process. */
interface Pending {
  requests: number;
  objects: number;
  bytes: number;
}

/**
 * Requests that arrive while a flush is on its way wait and leave together in the next one: one durable add
 * for all of them. Unless the workers are behind there is no timer: alone, a request leaves at once. Each workspace has a
 * share of a flush (src/queue/turns.ts), also where the others send to other shards. Each shard has flushes of its own:
 * one that does not answer keeps nobody else waiting.
 *
 * A workspace may have as much waiting here as is still free. So one sender gets at most half of the memory, two get a third
 * each, and there is room for whoever sends next.
 */
export function createGroupCommit(producer: LaneProducer, options: GroupCommitOptions) {
  const { placing } = producer;
  /** By shard, as far as one was needed. */
  const shards: ShardCommit[] = [];
  let pendingObjects = 0;
  let pendingBytes = 0;
  /** By workspace. */
  const pending = new Map<string, Pending>();
  /** Of all shards. */
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
   * @returns the envelopes of its flush, of which `envelopesOf` tells its own
   * @throws {QueueUnavailable} when that is not known, or at once when too much is waiting already.
   */
  function enqueue(
    request: EnvelopeRequest,
    objects: AcceptedObject[],
    { bytes, isAwaited = false }: EnqueueOptions,
  ): Promise<LaneEntry[]> {
    return wait({ owner: request.workspace_id, request, objects, count: objects.length, bytes, isAwaited });
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
    // Always accepted alone, as long as there is room: it may be more than half of the limit.
    if (own && isOverShare(own, count, bytes)) {
      return Promise.reject(
        new QueueUnavailable('the workspace has more waiting for the queue than is still free', {
          limit: 'share',
        }),
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

  /** Whether a workspace would have more waiting than is free, with these objects. */
  function isOverShare({ objects, bytes }: Pending, more: number, moreBytes: number): boolean {
    return (
      objects + more > options.maxPendingObjects - pendingObjects - more ||
      bytes + moreBytes > options.maxPendingBytes - pendingBytes - moreBytes
    );
  }

  /** Into the line of its shard. What moves to another waits until it is there. */
  function enter(one: WaitingRequest): void {
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
    /** One request in envelopes of its own, which are not added yet. */
    pack: (request: EnvelopeRequest, objects: AcceptedObject[], bytes: number): LaneEntry[] =>
      pack([{ request, objects, bytes }], options.lanes, options.maxEnvelopeObjects),
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

/**
 * Most objects in one flush, and most bytes unless one request has more: bounds the size of one command and the
 * time that a late comer waits. 4 MB take 80 to 130 ms on Redis and 300 to 400 ms on Postgres, of the 700 ms that
 * QUEUE_TIMEOUT_MS gives an add; 12 MB take Postgres 750 ms.
 */
const MAX_FLUSH_OBJECTS = 16_000;
const MAX_FLUSH_BYTES = 4_194_304;

/**
 * Milliseconds that a flush lets more requests join while the workers are behind. What waits here would wait
 * in its lane otherwise, and the workers pay per envelope: fewer and larger ones let them catch up.
 */
const LINGER = 2;

interface ShardOptions {
  producer: LaneProducer;
  placing: Placing | undefined;
  options: { lanes: number; maxEnvelopeObjects: number };
  neighbours: Neighbours;
  /** Whether more waits in the lanes of a shard than its workers have in hand. */
  isBehind(shard: number): boolean;
  fillsEnvelope(): boolean;
  /** Into the line of whatever shard it has by now. */
  enter(one: WaitingRequest): void;
  settle(batch: WaitingRequest[], result: LaneEntry[] | Error): void;
}

type ShardCommit = ReturnType<typeof createShardCommit>;

/** The flushes to the lanes of one shard, one after the other. */
export function createShardCommit(shard: number, { producer, placing, options, ...shared }: ShardOptions) {
  const { lanes, maxEnvelopeObjects } = options;
  const { neighbours, settle } = shared;
  const waiting = new FlushTurns<WaitingRequest>(neighbours);
  let flushing: Promise<void> | undefined;

  async function flushAll(): Promise<void> {
    // Let the requests of the present turn of the event loop join the first flush.
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
        // What waited behind this flush would wait as long again; it is refused with it.
        settle([...batch, ...waiting.takeAll()], error as Error);
      }
    }
    flushing = undefined;
  }

  /** Those whose workspace moves wait for their next shard. */
  function leaveOutMoved(batch: WaitingRequest[], { now }: Placing): WaitingRequest[] {
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

  /** @returns workspaces that have moved to another shard meanwhile, of which nothing was added */
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
