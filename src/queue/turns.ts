import type { LaneEntry } from './lanes.ts';
import type { Packable } from './pack.ts';

/** An item that waits for a flush, with its size. */
interface InLine {
  /** The workspace. */
  owner: string;
  count: number;
  bytes: number;
}

/** Maximum size of a flush, unless its first item is larger. */
interface FlushLimits {
  objects: number;
  bytes: number;
}

/**
 * Units of a workspace per flush while other workspaces send as well: some milliseconds of the time of the queue and of
 * a worker. A unit is an object or 1,024 bytes of JSON text, whichever is more.
 */
const SHARE = 500;
const BYTES_PER_UNIT = 1024;

/**
 * Milliseconds after which other workspaces no longer count as sending: since another workspace sent a request (in
 * web), or was seen waiting (in a worker).
 */
const NEIGHBOURS_MS = 10_000;

/** Detects whether several workspaces have sent something in the last 10 s, or one sends alone. */
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

/** The waiting line of a workspace: its items in the order in which they were sent. */
interface Line<Item> {
  items: Item[];
  /** Unused units of earlier flushes, saved while the first item is larger than the share. */
  credit: number;
}

/**
 * Shares flushes by deficit round robin among the workspaces that wait. Each flush gives every waiting workspace a
 * share. A workspace whose next request is larger saves its shares until they are enough. A workspace that sends
 * alone gets whole flushes.
 */
export class FlushTurns<Item extends InLine> {
  readonly #neighbours: Pick<Neighbours, 'areThere'>;
  /** Waiting items by workspace, in the order of the turns. */
  readonly #lines = new Map<string, Line<Item>>();

  constructor(neighbours: Pick<Neighbours, 'areThere'>) {
    this.#neighbours = neighbours;
  }

  push(item: Item): void {
    const line = this.#lines.get(item.owner);
    if (line) line.items.push(item);
    else this.#lines.set(item.owner, { items: [item], credit: 0 });
  }

  /** Takes the items of the next flush. The result is empty only if no item waits. */
  take(limits: FlushLimits): Item[] {
    const share = this.#neighbours.areThere() ? SHARE : Number.POSITIVE_INFINITY;
    const taken: Item[] = [];
    let [objects, bytes] = [0, 0];
    // In each pass every workspace saves a share, so that eventually one has enough for its first item.
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

  /** Takes all waiting items. */
  takeAll(): Item[] {
    const all = [...this.#lines.values()].flatMap(({ items }) => items);
    this.#lines.clear();
    return all;
  }

  isEmpty(): boolean {
    return this.#lines.size === 0;
  }
}

/** A request that waits for a flush, or envelopes that are packed already. */
export interface WaitingRequest extends InLine, Partial<Omit<Packable, 'bytes' | 'apart' | 'alone'>> {
  /** The packed envelopes; if absent, `request` and `objects` are set. */
  entries?: LaneEntry[];
  /** Whether the response waits until the objects have taken effect. */
  isAwaited?: boolean;
  resolve(entries: LaneEntry[]): void;
  reject(error: Error): void;
}

/** A request that is not packed yet. */
export type Loose = WaitingRequest & Packable;

/** A workspace with at least this many objects or bytes of JSON text in a flush gets its own envelopes. */
const OWN_OBJECTS = 64;
const OWN_BYTES = 65_536;

/**
 * Prepares a flush for packing. If a flush contains several workspaces, a workspace that has much in it gets its own
 * envelopes: in a shared envelope, it would delay the few objects of the others. A request whose response waits for its
 * effects gets envelopes without other requests.
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
