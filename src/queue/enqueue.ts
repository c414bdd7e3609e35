import { setTimeout as sleep } from 'node:timers/promises';
import type { AcceptedObject, EnvelopeRequest } from '../jobs/envelope.ts';
import { inPresentLanes } from './installation.ts';
import { BEHIND, type LaneEntry, type LaneProducer, type Placing, QueueUnavailable } from './lanes.ts';
import { MAX_ENVELOPE_BYTES, pack } from './pack.ts';
import { traceFlush } from './spans.ts';
import {
  createFlood,
  createFlushTurns,
  createNeighbours,
  type Flood,
  type Loose,
  largeOwners,
  type Neighbours,
  packableOf,
  type Track,
  type WaitingRequest,
} from './turns.ts';

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

/**
 * Requests that arrive while a flush is on its way wait and leave together in the next one: one durable add
 * for all of them. Unless the workers are behind there is no timer: alone, a request leaves at once. Workspaces have their
 * turns (src/queue/turns.ts), and while the workers are behind those who flood wait for each other alone. Each shard
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

  function wait(what: Omit<WaitingRequest, 'resolve' | 'reject'>): Promise<LaneEntry[]> {
    const { count, bytes } = what;
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
    pendingObjects += count;
    pendingBytes += bytes;
    return new Promise((resolve, reject) => enter({ ...what, resolve, reject }));
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

/** The longest rest between two flushes of those who flood, in milliseconds. */
const LONGEST_REST = 50;

interface ShardOptions {
  producer: LaneProducer;
  placing: Placing | undefined;
  options: { lanes: number; maxEnvelopeObjects: number; flushesAtOnce?: 1 | 2 };
  neighbours: Neighbours;
  flood: Flood;
  /** Whether more waits in the lanes of a shard than its workers have in hand. */
  isBehind(shard: number): boolean;
  lookForFlood(): void;
  fillsEnvelope(): boolean;
  /** Into the line of whatever shard it has by now. */
  enter(one: WaitingRequest): void;
  settle(batch: WaitingRequest[], result: LaneEntry[] | Error): void;
}

type ShardCommit = ReturnType<typeof createShardCommit>;

/** The flushes to the lanes of one shard. */
export function createShardCommit(shard: number, { producer, placing, options, ...shared }: ShardOptions) {
  const { lanes, maxEnvelopeObjects, flushesAtOnce } = options;
  const { neighbours, flood, settle } = shared;
  /** Who sends to this one. */
  const here = createNeighbours();
  const calm: Track = { waiting: createFlushTurns(neighbours), flushing: undefined };
  const flooding: Track = { waiting: createFlushTurns(neighbours), flushing: undefined };

  function enter(track: Track, ...some: WaitingRequest[]): void {
    for (const one of some) track.waiting.push(one);
    if (some.length > 0) track.flushing ??= flushAll(track);
  }

  /**
   * Milliseconds before the next flush while the workers are behind. Where somebody floods it is with theirs, and the
   * others wait for nobody. Those who flood leave as much of the queue's time as their last flush took.
   */
  function pauseOf(track: Track, took: number): number {
    if (track === flooding) return Math.min(Math.max(took, LINGER), LONGEST_REST);
    return flood.owners().length > 0 || shared.fillsEnvelope() ? 0 : LINGER;
  }

  /** Behind a flush of theirs, which is sent first. */
  function partFlood(): void {
    for (const owner of flood.owners()) enter(flooding, ...calm.waiting.takeOf(owner));
  }

  async function flushAll(track: Track): Promise<void> {
    const { waiting } = track;
    let took = 0;
    // Let the requests of the present turn of the event loop join the first flush.
    await new Promise(setImmediate);
    while (!waiting.isEmpty()) {
      const pause = shared.isBehind(shard) ? pauseOf(track, took) : 0;
      if (pause > 0) await sleep(pause);
      let batch = waiting.take({ objects: MAX_FLUSH_OBJECTS, bytes: MAX_FLUSH_BYTES });
      shared.lookForFlood();
      const apart = flood.owners();
      try {
        if (placing) {
          await placing.fresh(shard);
          batch = leaveOutMoved(batch, placing);
          if (batch.length === 0) continue;
        }
        const entries = entriesOf(batch, apart);
        const added = traceFlush(entries, () => add(entries));
        if (flushesAtOnce === 2) partFlood();
        const began = performance.now();
        const moved = await added;
        took = performance.now() - began;
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
    track.flushing = undefined;
  }

  /** Those whose workspace moves wait for their next shard. */
  function leaveOutMoved(batch: WaitingRequest[], { now }: Placing): WaitingRequest[] {
    const isHere = ({ owner }: WaitingRequest) => now(owner) === shard;
    if (batch.every(isHere)) return batch;
    for (const one of batch) if (!isHere(one)) shared.enter(one);
    return batch.filter(isHere);
  }

  /** @param apart workspaces that have envelopes of their own; mostly there are none */
  function entriesOf(batch: WaitingRequest[], apart: string[]): LaneEntry[] {
    if (!batch.some(({ entries }) => entries)) return packLoose(batch as Loose[], apart);
    const loose = batch.filter(({ entries }) => !entries) as Loose[];
    return [...packLoose(loose, apart), ...batch.flatMap(({ entries }) => entries ?? [])];
  }

  function packLoose(loose: Loose[], flooding: string[]): LaneEntry[] {
    const apart = [...flooding, ...largeOwners(loose)];
    const packable = apart.length === 0 ? loose : loose.map((one) => packableOf(one, apart));
    return pack(packable, lanes, maxEnvelopeObjects);
  }

  /** @returns workspaces that have moved to another shard meanwhile, of which nothing was added */
  async function add(entries: LaneEntry[]): Promise<ReadonlySet<string>> {
    if (placing) return placing.addTo(shard, entries);
    await producer.add(entries);
    return NOBODY;
  }

  return {
    isFlooding: (owner: string) => here.areThere() && flood.has(owner),
    enter(one: WaitingRequest): void {
      here.meet(one.owner);
      flood.count(one.owner, one.count);
      const isApart = flushesAtOnce === 2 && (flood.has(one.owner) || flooding.waiting.has(one.owner));
      enter(isApart ? flooding : calm, one);
    },
    isFlushing: () => Boolean(calm.flushing || flooding.flushing),
    flushed: () => Promise.all([calm.flushing, flooding.flushing]),
  };
}

const NOBODY: ReadonlySet<string> = new Set();

const MOVED = 'the workspace has moved to another shard meanwhile';
