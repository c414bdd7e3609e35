import type { LaneEntry } from './lanes.ts';
import type { Packable } from './pack.ts';

/** What waits for a flush, and how much of one it is. */
interface InLine {
  /** Whose it is: a workspace. */
  owner: string;
  count: number;
  bytes: number;
}

/** Most of a flush, unless the first that waits is more. */
interface FlushLimits {
  objects: number;
  bytes: number;
}

/**
 * Objects that one workspace has in a flush while others send as well: some milliseconds of the queue's time, and of a
 * worker's.
 */
const SHARE = 500;

/**
 * Milliseconds for which another workspace that has sent something counts as one that sends, and at a worker one of which
 * something was found to wait.
 */
export const NEIGHBOURS_MS = 10_000;

/** Whether a workspace that sends is alone, or others have sent something a moment ago. */
export function createNeighbours(clock: () => number = () => performance.now()) {
  let last: string | undefined;
  let metAt = Number.NEGATIVE_INFINITY;

  return {
    meet(owner: string): void {
      if (last !== undefined && last !== owner) metAt = clock();
      last = owner;
    },
    areThere: () => clock() - metAt < NEIGHBOURS_MS,
  };
}

export type Neighbours = ReturnType<typeof createNeighbours>;

/**
 * What waits for the next flush, by workspace. They take turns: each has its share of a flush, in the order in which it
 * sent, and who was served goes behind the others. Alone, a workspace has all of it.
 */
export function createFlushTurns<Item extends InLine>(neighbours: Neighbours) {
  /** In the order of their turns. */
  const lines = new Map<string, Item[]>();

  function push(item: Item): void {
    neighbours.meet(item.owner);
    const line = lines.get(item.owner);
    if (line) line.push(item);
    else lines.set(item.owner, [item]);
  }

  /** What leaves next. */
  function take(limits: FlushLimits): Item[] {
    const share = neighbours.areThere() ? SHARE : Number.POSITIVE_INFINITY;
    const taken: Item[] = [];
    let [objects, bytes] = [0, 0];
    for (const [owner, line] of [...lines]) {
      let [own, count] = [0, 0];
      let isFull = false;
      for (const item of line) {
        isFull =
          taken.length + count > 0 &&
          (objects + item.count > limits.objects || bytes + item.bytes > limits.bytes);
        if (isFull || (count > 0 && own + item.count > share)) break;
        own += item.count;
        objects += item.count;
        bytes += item.bytes;
        count++;
      }
      taken.push(...line.splice(0, count));
      if (line.length === 0) lines.delete(owner);
      else if (count > 0) {
        lines.delete(owner);
        lines.set(owner, line);
      }
      if (isFull) break;
    }
    return taken;
  }

  return {
    push,
    take,
    /** Everything, which is taken away. */
    takeAll(): Item[] {
      const all = [...lines.values()].flat();
      lines.clear();
      return all;
    },
    /** What one workspace has waiting, which is taken away. */
    takeOf(owner: string): Item[] {
      const line = lines.get(owner) ?? [];
      lines.delete(owner);
      return line;
    },
    has: (owner: string) => lines.has(owner),
    isEmpty: () => lines.size === 0,
  };
}

type FlushTurns<Item extends InLine> = ReturnType<typeof createFlushTurns<Item>>;

/** The part of what is sent, and the objects, from which on a workspace floods; counted over so many milliseconds. */
const LARGE_PART = 1 / 8;

const LEAST_OBJECTS = 200;

const WINDOW_MS = 250;

/** Milliseconds for which one that has flooded counts as one that does: what it has queued stands in front. */
const APART_MS = 5000;

/**
 * Who floods: sends a large part of all that is sent, while the workers are behind and others send as well. Its objects
 * leave in envelopes of their own; the others share envelopes, and overtake it in its lane. There are a few of them at a
 * time, however many workspaces there are.
 */
export function createFlood(clock: () => number = () => performance.now()) {
  /** When each had a large part last. */
  const large = new Map<string, number>();
  let counts = new Map<string, number>();
  let all = 0;
  let since = clock();

  return {
    /** Somebody has sent so many objects. */
    count(owner: string, objects: number): void {
      counts.set(owner, (counts.get(owner) ?? 0) + objects);
      all += objects;
    },
    /** @param isPossible whether others send as well, and more waits in the lanes of the owner than workers have in hand */
    look(isPossible: (owner: string) => boolean): void {
      const now = clock();
      if (now - since < WINDOW_MS) return;
      for (const [owner, at] of large) if (now - at > APART_MS) large.delete(owner);
      const least = Math.max(LEAST_OBJECTS, all * LARGE_PART);
      for (const [owner, count] of counts) if (count >= least && isPossible(owner)) large.set(owner, now);
      counts = new Map();
      all = 0;
      since = now;
    },
    has: (owner: string) => large.has(owner),
    owners: (): string[] => [...large.keys()],
  };
}

export type Flood = ReturnType<typeof createFlood>;

/** What waits for a flush, and those on their way, one after the other, until nothing waits. */
export interface Track {
  waiting: FlushTurns<WaitingRequest>;
  flushing: Promise<void> | undefined;
}

/** A request that waits for a flush, or what waits in envelopes of its own. */
export interface WaitingRequest extends InLine, Partial<Omit<Packable, 'bytes' | 'apart'>> {
  /** Those envelopes; else there are `request` and `objects`. */
  entries?: LaneEntry[];
  resolve(entries: LaneEntry[]): void;
  reject(error: Error): void;
}

/** What waits to be packed. */
export type Loose = WaitingRequest & Packable;

/** Objects, and bytes of their JSON text, from which on a workspace has envelopes of its own in a flush. */
const OWN_OBJECTS = 64;
const OWN_BYTES = 65_536;

/**
 * Returns the workspaces that have much in a flush with others. In envelopes that they shared, a few objects of the others
 * would be applied in parts.
 */
export function largeOwners(loose: readonly Loose[]): string[] {
  const [first] = loose;
  if (!first || loose.every(({ owner }) => owner === first.owner)) return [];
  const sums = new Map<string, { objects: number; bytes: number }>();
  for (const { owner, count, bytes } of loose) {
    const sum = sums.get(owner) ?? { objects: 0, bytes: 0 };
    sum.objects += count;
    sum.bytes += bytes;
    sums.set(owner, sum);
  }
  return [...sums].flatMap(([owner, { objects, bytes }]) =>
    objects >= OWN_OBJECTS || bytes >= OWN_BYTES ? [owner] : [],
  );
}

export function packableOf({ request, objects, bytes, owner }: Loose, apart: string[]): Packable {
  return { request, objects, bytes, apart: apart.includes(owner) };
}
