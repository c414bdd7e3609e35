import { SHARED, tagOf } from '../../src/queue/lanes.ts';
import type { PartSize } from '../batch/open.ts';

/** An envelope that waits in a lane, as one snapshot of the lane shows it. */
export interface WaitingEnvelope {
  /** Key of its ledger row. */
  id: string;
  /** The tag in the id of its job; undefined where the id carries none: a fence, a replay, an earlier release. */
  tag: string | undefined;
  /** Size of what is left of it by workspace; absent while its data has not been read. */
  parts?: ReadonlyMap<string, PartSize> | undefined;
  /** A fence, or an envelope of a later release: nothing behind it may take effect before it. */
  isBarrier?: boolean;
  /** Applying it together with others has failed: it is applied by itself. */
  isTroubled?: boolean;
}

/** What the worker knows of a workspace's use of the process. Units are defined in accounts.ts. */
export interface AccountsView {
  /** Virtual time in units up to which a workspace has been served; at least the virtual time of the process. */
  servedUntil(workspaceId: string): number;
  /** Expected units of some objects. */
  unitsOf(workspaceId: string, size: PartSize): number;
  /** Most objects in one batch: fewer than all after statements that took too long. */
  mostObjects(workspaceId: string): number;
  /** Whether a batch with others has failed, so that the workspace has batches of its own. */
  isApart(workspaceId: string): boolean;
  /** Whether the workspace waits before it is tried again. */
  isResting(workspaceId: string): boolean;
}

export interface BatchLimits {
  /** Objects and bytes of JSON text that are enough for a transaction, unless one envelope has more. */
  objects: number;
  bytes: number;
  /** Units of a slice; undefined: no second workspace sends, and a batch may have everything. */
  slice: number | undefined;
}

/** What one transaction takes from a lane. */
export interface Batch {
  /** Envelopes in the order of the lane, each with the workspaces whose objects are taken from it. */
  envelopes: { id: string; workspaces: ReadonlySet<string> }[];
  /** Objects by workspace. */
  objects: ReadonlyMap<string, number>;
  /** Most objects of the workspaces that have more in the last of their envelopes: the rest stays in the lane. */
  shares: ReadonlyMap<string, number>;
  /** Expected units of all of it. */
  units: number;
  /** Whether it is one envelope that is applied by itself. */
  isTroubled: boolean;
  /** The virtual time at which the batch begins: that of the workspace that was served least. */
  start: number;
}

/** Units up to which the part of a workspace in a shared envelope is taken along with the parts of others. */
const SMALL_PART = 64;

/** What a workspace may have applied now: a prefix of what it has in the lane. */
interface Line {
  workspaceId: string;
  /** Places in the window. */
  places: number[];
  servedUntil: number;
  /** The line is one envelope, which is applied by itself. */
  isTroubled: boolean;
}

/**
 * Chooses the next batch of a lane: deficit round robin over workspaces. The workspace that was served least is first;
 * a workspace that is a slice ahead of it waits. For each workspace the batch is a prefix of what the window shows of
 * it, so that any window that was read whole, however long ago, gives batches in the right order.
 *
 * @param window the lane's envelopes from its head without a gap
 * @returns undefined when nothing may take effect now
 */
export function nextBatch(
  window: readonly WaitingEnvelope[],
  accounts: AccountsView,
  limits: BatchLimits,
): Batch | undefined {
  const lines = linesIn(window, accounts);
  const [first] = lines;
  if (!first) return undefined;
  const choice = new Choice(window, { accounts, limits, start: first.servedUntil });
  if (first.isTroubled) choice.takeTroubled(first, lines);
  else if (accounts.isApart(first.workspaceId)) choice.take(first);
  else
    for (const line of lines) {
      if (choice.isFull(line)) break;
      if (!line.isTroubled && !accounts.isApart(line.workspaceId)) choice.take(line);
    }
  if (!first.isTroubled) choice.takeSmallParts(lines);
  return choice.batch();
}

/** The lines of all workspaces, least served first; those that were served as much are in the order of the lane. */
function linesIn(window: readonly WaitingEnvelope[], accounts: AccountsView): Line[] {
  const lines = new Map<string, Line>();
  /** Workspaces of which no more may be taken, and tags of those whose envelopes have not been read. */
  const blocked = new Set<string>();
  const unread = new Set<string>();
  for (let place = 0; place < window.length; place++) {
    const { tag, parts, isBarrier, isTroubled = false } = window[place]!;
    if (isBarrier) break;
    if (!parts) {
      if (tag === undefined || tag === SHARED) break;
      unread.add(tag);
      continue;
    }
    for (const workspaceId of parts.keys()) {
      if (blocked.has(workspaceId)) continue;
      const line = lines.get(workspaceId);
      if ((unread.size > 0 && unread.has(tagOf(workspaceId))) || (isTroubled && line)) {
        blocked.add(workspaceId);
        continue;
      }
      if (line) line.places.push(place);
      else {
        const servedUntil = accounts.servedUntil(workspaceId);
        lines.set(workspaceId, { workspaceId, places: [place], servedUntil, isTroubled });
        if (isTroubled) blocked.add(workspaceId);
      }
    }
  }
  const all = [...lines.values()].filter(({ workspaceId }) => !accounts.isResting(workspaceId));
  // Sorting is stable.
  const isSorted = all.every((line, index) => index === 0 || all[index - 1]!.servedUntil <= line.servedUntil);
  return isSorted ? all : all.sort((one, other) => one.servedUntil - other.servedUntil);
}

/** A batch that is being filled. */
class Choice {
  readonly #window: readonly WaitingEnvelope[];
  readonly #accounts: AccountsView;
  readonly #limits: BatchLimits;
  readonly #start: number;
  /** Workspaces by place in the window. */
  readonly #taken = new Map<number, Set<string>>();
  /** Objects by workspace. */
  readonly #shares = new Map<string, number>();
  /** Workspaces that have more in the last of their envelopes. */
  readonly #cut = new Set<string>();
  #isTroubled = false;
  /** Number of places of each line that are taken whole. */
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

  /** Whether nothing of this line, and of those that were served more, is taken. */
  isFull({ servedUntil }: Line): boolean {
    const { slice, objects, bytes } = this.#limits;
    if (this.#shares.size === 0) return false;
    if (this.#objects >= objects || this.#bytes >= bytes) return true;
    return slice !== undefined && (servedUntil - this.#start >= slice || this.#units >= slice);
  }

  /** Takes as much of a line as the workspace may have; at least one object if the batch is empty. */
  take({ workspaceId, places, servedUntil }: Line): void {
    const { slice = Number.POSITIVE_INFINITY } = this.#limits;
    const allowance = Math.min(slice - (servedUntil - this.#start), slice - this.#units);
    const most = this.#accounts.mostObjects(workspaceId);
    let [units, objects] = [0, 0];
    for (const place of places) {
      const size = this.#window[place]!.parts!.get(workspaceId)!;
      const isFirst = this.#shares.size === 0 && objects === 0;
      if (!isFirst && this.#exceeds(size)) return;
      const cost = this.#accounts.unitsOf(workspaceId, size);
      const part = Math.max((allowance - units) / cost, 0);
      const fitting = Math.min(part >= 1 ? size.objects : Math.floor(part * size.objects), most - objects);
      const taken = isFirst ? Math.max(Math.min(1, size.objects), fitting) : fitting;
      if (taken <= 0 && size.objects > 0) return;
      this.#take(place, workspaceId, { ...size, objects: taken });
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

  /** Takes a troubled envelope for all workspaces of which it is the next. */
  takeTroubled({ places }: Line, lines: readonly Line[]): void {
    const [place] = places;
    this.#isTroubled = true;
    for (const line of lines) {
      if (line.places[0] !== place) continue;
      const size = this.#window[place!]!.parts!.get(line.workspaceId)!;
      this.#take(place!, line.workspaceId, size);
      this.#shares.set(line.workspaceId, size.objects);
    }
  }

  /** Takes what others have in the shared envelopes of the batch, where it is little and their turn in the lane. */
  takeSmallParts(lines: readonly Line[]): void {
    let isShared = false;
    for (const [place, workspaces] of this.#taken)
      isShared ||= workspaces.size < this.#window[place]!.parts!.size;
    if (!isShared) return;
    for (const { workspaceId, places, isTroubled } of lines) {
      if (isTroubled || this.#accounts.isApart(workspaceId)) continue;
      const most = this.#accounts.mostObjects(workspaceId);
      let objects = this.#shares.get(workspaceId) ?? 0;
      for (let next = this.#whole.get(workspaceId) ?? 0; next < places.length; next++) {
        const place = places[next]!;
        const workspaces = this.#taken.get(place);
        // A part of which some objects are taken already ends the line.
        if (!workspaces || workspaces.has(workspaceId)) break;
        const size = this.#window[place]!.parts!.get(workspaceId)!;
        const isSmall = this.#accounts.unitsOf(workspaceId, size) <= SMALL_PART;
        if (!isSmall || objects + size.objects > most) break;
        this.#take(place, workspaceId, size);
        objects += size.objects;
        this.#shares.set(workspaceId, objects);
        this.#units += this.#accounts.unitsOf(workspaceId, size);
      }
    }
  }

  batch(): Batch {
    const places = [...this.#taken.keys()].sort((one, other) => one - other);
    return {
      envelopes: places.map((place) => ({
        id: this.#window[place]!.id,
        workspaces: this.#taken.get(place)!,
      })),
      objects: this.#shares,
      shares: new Map([...this.#cut].map((workspaceId) => [workspaceId, this.#shares.get(workspaceId)!])),
      units: this.#units,
      isTroubled: this.#isTroubled,
      start: this.#start,
    };
  }

  #exceeds({ objects, bytes }: PartSize): boolean {
    return this.#objects + objects > this.#limits.objects || this.#bytes + bytes > this.#limits.bytes;
  }

  #take(place: number, workspaceId: string, { objects, bytes }: PartSize): void {
    const workspaces = this.#taken.get(place);
    if (workspaces) workspaces.add(workspaceId);
    else this.#taken.set(place, new Set([workspaceId]));
    this.#objects += objects;
    this.#bytes += bytes;
  }
}
