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
 * Units that one workspace gets in each flush while others send as well: some milliseconds of the queue's time, and of a
 * worker's. A unit is an object or 1,024 bytes of JSON text, whichever is more.
 */
const SHARE = 500;
const BYTES_PER_UNIT = 1024;

/**
 * Milliseconds for which another workspace that has sent something counts as one that sends, and at a worker one of which
 * something was found to wait.
 */
export const NEIGHBOURS_MS = 10_000;

/** Notes which workspaces send, to tell whether one sends alone or others have sent something in the last 10 s. */
export class Neighbours {
  readonly #clock: () => number;
  #last: string | undefined;
  #metAt = Number.NEGATIVE_INFINITY;

  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
  }

  meet(owner: string): void {
    if (this.#last !== undefined && this.#last !== owner) this.#metAt = this.#clock();
    this.#last = owner;
  }

  areThere(): boolean {
    return this.#clock() - this.#metAt < NEIGHBOURS_MS;
  }
}

/** What one workspace has waiting for a flush, in the order in which it was sent. */
interface Line<Item> {
  items: Item[];
  /** Units that it may still take, saved while its first item was larger than its share. */
  credit: number;
}

/**
 * The share of a flush: deficit round robin over the workspaces that wait for one. Each flush gives every workspace that
 * waits a share. A workspace whose next request is larger saves its shares until they are enough. A workspace that sends
 * alone gets whole flushes.
 */
export class FlushTurns<Item extends InLine> {
  readonly #neighbours: Pick<Neighbours, 'areThere'>;
  /** In the order of their turns. */
  readonly #lines = new Map<string, Line<Item>>();

  constructor(neighbours: Pick<Neighbours, 'areThere'>) {
    this.#neighbours = neighbours;
  }

  push(item: Item): void {
    const line = this.#lines.get(item.owner);
    if (line) line.items.push(item);
    else this.#lines.set(item.owner, { items: [item], credit: 0 });
  }

  /** Takes the next flush: empty only if nothing waits. */
  take(limits: FlushLimits): Item[] {
    const share = this.#neighbours.areThere() ? SHARE : Number.POSITIVE_INFINITY;
    const taken: Item[] = [];
    let [objects, bytes] = [0, 0];
    // In each pass every line saves a share, so that some line has enough for its first item in the end.
    while (taken.length === 0 && this.#lines.size > 0) {
      for (const [owner, line] of [...this.#lines]) {
        let credit = line.credit + share;
        let count = 0;
        let isFull = false;
        for (const item of line.items) {
          const units = Math.max(item.count, item.bytes / BYTES_PER_UNIT);
          if (units > credit) break;
          isFull =
            taken.length + count > 0 &&
            (objects + item.count > limits.objects || bytes + item.bytes > limits.bytes);
          if (isFull) break;
          credit -= units;
          objects += item.count;
          bytes += item.bytes;
          count++;
        }
        taken.push(...line.items.splice(0, count));
        line.credit = Number.isFinite(credit) ? credit : 0;
        if (line.items.length === 0) this.#lines.delete(owner);
        else if (count > 0) {
          this.#lines.delete(owner);
          this.#lines.set(owner, line);
        }
        if (isFull) break;
      }
    }
    return taken;
  }

  /** Takes everything that waits. */
  takeAll(): Item[] {
    const all = [...this.#lines.values()].flatMap(({ items }) => items);
    this.#lines.clear();
    return all;
  }

  isEmpty(): boolean {
    return this.#lines.size === 0;
  }
}

/** A request that waits for a flush, or what waits in envelopes of its own. */
export interface WaitingRequest extends InLine, Partial<Omit<Packable, 'bytes' | 'apart' | 'alone'>> {
  /** Those envelopes; else there are `request` and `objects`. */
  entries?: LaneEntry[];
  /** Its response waits until the objects have taken effect. */
  isAwaited?: boolean;
  resolve(entries: LaneEntry[]): void;
  reject(error: Error): void;
}

/** What waits to be packed. */
export type Loose = WaitingRequest & Packable;

/** Objects, and bytes of their JSON text, from which on a workspace has envelopes of its own in a flush. */
const OWN_OBJECTS = 64;
const OWN_BYTES = 65_536;

/**
 * Prepares a flush for packing. A workspace that has much in a flush with others gets envelopes of its own: in envelopes
 * that they shared, a few objects of the others would be applied in parts. A request whose response waits for its effects
 * gets envelopes that hold no other request.
 */
export function packablesOf(loose: readonly Loose[]): readonly Packable[] {
  const apart = largeOwners(loose);
  for (const { owner, isAwaited } of loose) if (isAwaited) apart.add(owner);
  if (apart.size === 0) return loose;
  return loose.map(({ request, objects, bytes, owner, isAwaited = false }) => ({
    ...{ request, objects, bytes },
    ...{ apart: apart.has(owner), alone: isAwaited },
  }));
}

function largeOwners(loose: readonly Loose[]): Set<string> {
  const [first] = loose;
  if (!first || loose.every(({ owner }) => owner === first.owner)) return new Set();
  const sums = new Map<string, { objects: number; bytes: number }>();
  for (const { owner, count, bytes } of loose) {
    const sum = sums.get(owner) ?? { objects: 0, bytes: 0 };
    sum.objects += count;
    sum.bytes += bytes;
    sums.set(owner, sum);
  }
  return new Set(
    [...sums].flatMap(([owner, { objects, bytes }]) =>
      objects >= OWN_OBJECTS || bytes >= OWN_BYTES ? [owner] : [],
    ),
  );
}
