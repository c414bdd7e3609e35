import { SHARED, tagOf } from '../../src/queue/lanes.ts';
import type { PartSize } from '../batch/open.ts';
import type { FenceEntry } from '../fence/fence-order.ts';
import type { IsolationView } from './isolation.ts';

/** A waiting envelope in one snapshot of a lane. */
export interface WaitingEnvelope {
  /** Key of its ledger row. */
  id: string;
  /** Workspace tag in the job id; undefined for a replay or a job of an earlier release. */
  tag: string | undefined;
  /** Size of its remaining objects, by workspace; absent until its data has been read, and for a mark of a fence. */
  parts?: ReadonlyMap<string, PartSize> | undefined;
  /** Whether it is an envelope of a later release: later envelopes must not take effect before it. */
  isBarrier?: boolean;
  /** The fence that it belongs to. Until the fence is open, later envelopes of its workspace must not take effect. */
  fence?: FenceEntry;
}

/** Usage of the process by workspace. Units are defined in accounts.ts. */
export interface AccountsView {
  /** Returns the virtual time up to which a workspace has been served, in units; at least that of the process. */
  servedUntil(workspaceId: string): number;
  /** Returns the expected units of the given objects. */
  unitsOf(workspaceId: string, size: PartSize): number;
}

interface BatchLimits {
  /** Target size of a transaction in objects and in bytes of JSON text; a single envelope can exceed it. */
  objects: number;
  bytes: number;
  /** Units of a slice; undefined while only one workspace sends, so that its batch has no such limit. */
  slice: number | undefined;
  /** Workspaces whose batches have failed in this lane. */
  isolation: IsolationView;
}

/** The objects that one transaction takes from a lane. */
export interface Batch {
  /** Envelopes in lane order, each with the workspaces whose objects are taken from it. */
  envelopes: { id: string; workspaces: ReadonlySet<string> }[];
  /** Number of objects by workspace. */
  objects: ReadonlyMap<string, number>;
  /**
   * Number of objects that the batch takes from each workspace whose last envelope it takes only in part. The other
   * objects of that envelope stay in the lane.
   */
  shares: ReadonlyMap<string, number>;
  /** Expected units of the whole batch. */
  units: number;
  /** Virtual time at which the batch begins: the `servedUntil` of its least served workspace. */
  start: number;
}

/** Maximum units of a workspace's part of a shared envelope that is taken along with the parts of other workspaces. */
const SMALL_PART = 64;

/** The waiting line of a workspace: its envelopes that can be applied now, in lane order. */
interface Line {
  workspaceId: string;
  /** Indexes of its envelopes in the window. */
  indexes: number[];
  servedUntil: number;
}

/**
 * Chooses the next batch of a lane by deficit round robin over workspaces. The least served workspace comes first; a
 * workspace that is a slice ahead of it waits. For each workspace, the batch is a prefix of its objects in the window.
 * Therefore, any complete snapshot gives batches in the right order, even an old one.
 *
 * @param window the lane's envelopes from its head without a gap
 * @returns undefined if no envelope can be applied now
 */
export function nextBatch(
  window: readonly WaitingEnvelope[],
  accounts: AccountsView,
  limits: BatchLimits,
): Batch | undefined {
  const { isolation } = limits;
  const lines = linesIn(window, accounts).filter(({ workspaceId }) => !isolation.isResting(workspaceId));
  const [first] = lines;
  if (!first) return undefined;
  const choice = new Choice(window, { accounts, limits, start: first.servedUntil });
  if (isolation.isApart(first.workspaceId)) {
    choice.take(first);
    return choice.batch();
  }
  const sharing = lines.filter(({ workspaceId }) => !isolation.isApart(workspaceId));
  for (const line of sharing) {
    if (choice.isFull(line)) break;
    choice.take(line);
  }
  choice.takeSmallParts(sharing);
  return choice.batch();
}

/** Returns the waiting lines of all workspaces. The least served workspace comes first; ties are in lane order. */
function linesIn(window: readonly WaitingEnvelope[], accounts: AccountsView): Line[] {
  const lines = new Map<string, Line>();
  /** Workspaces that get no further envelopes in their line, and tags of workspaces with an unread envelope. */
  const blocked = new Set<string>();
  const unread = new Set<string>();
  for (let index = 0; index < window.length; index++) {
    const { tag, parts, isBarrier, fence } = window[index]!;
    if (isBarrier) break;
    if (fence && !fence.isOpen) {
      if (fence.workspaceId === undefined) break;
      blocked.add(fence.workspaceId);
      continue;
    }
    if (!parts) {
      if (fence) continue;
      // An unread envelope may hold earlier objects, or a fence, of its workspace. Without the tag of one workspace, it may
      // hold objects of any workspace.
      if (tag === undefined || tag === SHARED) break;
      unread.add(tag);
      continue;
    }
    for (const workspaceId of parts.keys()) {
      if (blocked.has(workspaceId)) continue;
      const line = lines.get(workspaceId);
      if (unread.size > 0 && unread.has(tagOf(workspaceId))) blocked.add(workspaceId);
      else if (line) line.indexes.push(index);
      else {
        const servedUntil = accounts.servedUntil(workspaceId);
        lines.set(workspaceId, { workspaceId, indexes: [index], servedUntil });
      }
    }
  }
  const all = [...lines.values()];
  // The sort is stable, so ties keep their lane order.
  const isSorted = all.every((line, index) => index === 0 || all[index - 1]!.servedUntil <= line.servedUntil);
  return isSorted ? all : all.sort((one, other) => one.servedUntil - other.servedUntil);
}

/** A batch that is being filled. */
class Choice {
  readonly #window: readonly WaitingEnvelope[];
  readonly #accounts: AccountsView;
  readonly #limits: BatchLimits;
  readonly #start: number;
  /** Workspaces whose objects are taken, by index in the window. */
  readonly #taken = new Map<number, Set<string>>();
  /** Number of objects by workspace. */
  readonly #shares = new Map<string, number>();
  /** Workspaces whose last envelope is taken in part. */
  readonly #cut = new Set<string>();
  /** Number of envelopes of each line that are taken whole, by workspace. */
  readonly #whole = new Map<string, number>();
  #units = 0;
  #objects = 0;
  #bytes = 0;

  constructor(
    window: readonly WaitingEnvelope[],
    { accounts, limits, start }: { accounts: AccountsView; limits: BatchLimits; start: number },
  ) {
    this.#window = window;
    this.#accounts = accounts;
    this.#limits = limits;
    this.#start = start;
  }

  /**
   * Returns whether the batch has no room for the objects of this line. Later lines were served more, so there is no
   * room for them either.
   */
  isFull({ servedUntil }: Line): boolean {
    const { slice, objects, bytes } = this.#limits;
    if (this.#shares.size === 0) return false;
    if (this.#objects >= objects || this.#bytes >= bytes) return true;
    return slice !== undefined && (servedUntil - this.#start >= slice || this.#units >= slice);
  }

  /** Takes as much of a line as its workspace is allowed; at least one object if the batch is empty. */
  take({ workspaceId, indexes, servedUntil }: Line): void {
    const { slice = Number.POSITIVE_INFINITY } = this.#limits;
    const allowance = Math.min(slice - (servedUntil - this.#start), slice - this.#units);
    const max = this.#limits.isolation.maxObjects(workspaceId);
    let [units, objects] = [0, 0];
    for (const index of indexes) {
      const size = this.#window[index]!.parts!.get(workspaceId)!;
      const isFirst = this.#shares.size === 0 && objects === 0;
      if (!isFirst && this.#exceeds(size)) return;
      const cost = this.#accounts.unitsOf(workspaceId, size);
      const part = Math.max((allowance - units) / cost, 0);
      const fitting = Math.min(part >= 1 ? size.objects : Math.floor(part * size.objects), max - objects);
      const taken = isFirst ? Math.max(Math.min(1, size.objects), fitting) : fitting;
      if (taken <= 0 && size.objects > 0) return;
      this.#take(index, workspaceId, { ...size, objects: taken });
      units += size.objects > 0 ? (cost * taken) / size.objects : cost;
      objects += taken;
      this.#shares.set(workspaceId, objects);
      this.#units += size.objects > 0 ? (cost * taken) / size.objects : cost;
      if (taken < size.objects) {
        this.#cut.add(workspaceId);
        return;
      }
      this.#whole.set(workspaceId, (this.#whole.get(workspaceId) ?? 0) + 1);
    }
  }

  /** Takes small parts of other workspaces in the shared envelopes of the batch, if they are next in their lines. */
  takeSmallParts(lines: readonly Line[]): void {
    let isShared = false;
    for (const [index, workspaces] of this.#taken)
      isShared ||= workspaces.size < this.#window[index]!.parts!.size;
    if (!isShared) return;
    for (const { workspaceId, indexes } of lines) {
      const max = this.#limits.isolation.maxObjects(workspaceId);
      let objects = this.#shares.get(workspaceId) ?? 0;
      for (let next = this.#whole.get(workspaceId) ?? 0; next < indexes.length; next++) {
        const index = indexes[next]!;
        const workspaces = this.#taken.get(index);
        // Objects of a workspace keep their order: after an envelope that is not in the batch, or is taken in part, no
        // later one may follow.
        if (!workspaces || workspaces.has(workspaceId)) break;
        const size = this.#window[index]!.parts!.get(workspaceId)!;
        const isSmall = this.#accounts.unitsOf(workspaceId, size) <= SMALL_PART;
        if (!isSmall || objects + size.objects > max) break;
        this.#take(index, workspaceId, size);
        objects += size.objects;
        this.#shares.set(workspaceId, objects);
        this.#units += this.#accounts.unitsOf(workspaceId, size);
      }
    }
  }

  batch(): Batch {
    const indexes = [...this.#taken.keys()].sort((one, other) => one - other);
    return {
      envelopes: indexes.map((index) => ({
        id: this.#window[index]!.id,
        workspaces: this.#taken.get(index)!,
      })),
      objects: this.#shares,
      shares: new Map([...this.#cut].map((workspaceId) => [workspaceId, this.#shares.get(workspaceId)!])),
      units: this.#units,
      start: this.#start,
    };
  }

  #exceeds({ objects, bytes }: PartSize): boolean {
    return this.#objects + objects > this.#limits.objects || this.#bytes + bytes > this.#limits.bytes;
  }

  #take(index: number, workspaceId: string, { objects, bytes }: PartSize): void {
    const workspaces = this.#taken.get(index);
    if (workspaces) workspaces.add(workspaceId);
    else this.#taken.set(index, new Set([workspaceId]));
    this.#objects += objects;
    this.#bytes += bytes;
  }
}
