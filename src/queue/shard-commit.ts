import { setTimeout as sleep } from 'node:timers/promises';
import {
  createFlushTurns,
  createNeighbours,
  type Flood,
  type FlushTurns,
  type InLine,
  type Neighbours,
} from './flush-turns.ts';
import { type LaneEntry, type LaneProducer, type Placing, QueueUnavailable } from './lanes.ts';
import { type Packable, pack } from './pack.ts';
import { traceFlush } from './spans.ts';

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
export const LINGER = 2;

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
  enter(one: Waiting): void;
  settle(batch: Waiting[], result: LaneEntry[] | Error): void;
}

export type ShardCommit = ReturnType<typeof createShardCommit>;

/** The flushes to the lanes of one shard. */
export function createShardCommit(shard: number, { producer, placing, options, ...shared }: ShardOptions) {
  const { lanes, maxEnvelopeObjects, flushesAtOnce } = options;
  const { neighbours, flood, settle } = shared;
  /** Who sends to this one. */
  const here = createNeighbours();
  const calm: Track = { waiting: createFlushTurns(neighbours), flushing: undefined };
  const flooding: Track = { waiting: createFlushTurns(neighbours), flushing: undefined };

  function enter(track: Track, ...some: Waiting[]): void {
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
  function leaveOutMoved(batch: Waiting[], { now }: Placing): Waiting[] {
    const isHere = ({ owner }: Waiting) => now(owner) === shard;
    if (batch.every(isHere)) return batch;
    for (const one of batch) if (!isHere(one)) shared.enter(one);
    return batch.filter(isHere);
  }

  /** @param apart workspaces that have envelopes of their own; mostly there are none */
  function entriesOf(batch: Waiting[], apart: string[]): LaneEntry[] {
    if (!batch.some(({ entries }) => entries)) return packLoose(batch as Loose[], apart);
    const loose = batch.filter(({ entries }) => !entries) as Loose[];
    return [...packLoose(loose, apart), ...batch.flatMap(({ entries }) => entries ?? [])];
  }

  function packLoose(loose: Loose[], apart: string[]): LaneEntry[] {
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
    enter(one: Waiting): void {
      here.meet(one.owner);
      flood.count(one.owner, one.count);
      const isApart = flushesAtOnce === 2 && (flood.has(one.owner) || flooding.waiting.has(one.owner));
      enter(isApart ? flooding : calm, one);
    },
    isFlushing: () => Boolean(calm.flushing || flooding.flushing),
    flushed: () => Promise.all([calm.flushing, flooding.flushing]),
  };
}

/** What waits to be packed. */
type Loose = Waiting & Packable;

function packableOf({ request, objects, bytes, owner }: Loose, apart: string[]): Packable {
  return { request, objects, bytes, apart: apart.includes(owner) };
}

const NOBODY: ReadonlySet<string> = new Set();

const MOVED = 'the workspace has moved to another shard meanwhile';

/** What waits for a flush, and those on their way, one after the other, until nothing waits. */
interface Track {
  waiting: FlushTurns<Waiting>;
  flushing: Promise<void> | undefined;
}

export interface Waiting extends InLine, Partial<Omit<Packable, 'bytes' | 'apart'>> {
  /** What waits in envelopes of its own; else there are `request` and `objects`. */
  entries?: LaneEntry[];
  resolve(entries: LaneEntry[]): void;
  reject(error: Error): void;
}
