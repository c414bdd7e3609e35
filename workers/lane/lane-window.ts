import { withTimeout } from '../../src/platform/lifecycle.ts';
import { createBackOff } from '../../src/platform/poll.ts';
import { type Json, jsonBytesAtLeast } from '../../src/profile/json.ts';
import type { LaneStore, Lease, StoredEnvelope } from '../../src/queue/lane-store.ts';
import { SHARED, tagIn, tagOf } from '../../src/queue/lanes.ts';
import { versionOf, type WireEnvelope } from '../../src/queue/wire.ts';
import { type Delivery, fenceOf, ledgerKey, workspaceOfFence } from '../batch/open.ts';
import { type FenceEntry, fencesIn } from '../fence/fence-order.ts';
import type { Fences, OpenLane } from '../fence/fences.ts';
import type { Accounts } from './accounts.ts';
import {
  ENOUGH_BYTES,
  ENOUGH_OBJECTS,
  remaining,
  type Step,
  type WaitingDelivery,
  waiting,
} from './scheduler.ts';

/**
 * Numbers of waiting jobs whose ids a snapshot reads. Jobs after these are not considered yet.
 */
export interface SnapshotSizes {
  /** At first, and while fewer jobs wait. */
  min: number;
  /** If the previous snapshot was full. A deep snapshot keeps as many jobs of one tag. */
  max: number;
  /** Every `DEEP_MS` milliseconds, while more than `max` jobs wait. */
  deep: number;
}

const SIZES: SnapshotSizes = { min: 256, max: 4096, deep: 32_768 };
const DEEP_MS = 250;

/**
 * Milliseconds for which a snapshot of more than `SIZES.min` jobs is used again; a deep snapshot is used again for `DEEP_MS`. Both
 * only while at least `MIN_KEPT_PART` of their jobs are left. It saves time when the batches are small.
 */
const KEPT_MS = 20;
const MIN_KEPT_PART = 1 / 2;

/**
 * Maximum number of envelopes whose data one command reads: `AT_ONCE`, or `SMALL_AT_ONCE` if an average envelope fills
 * less than the part `SMALL` of a transaction.
 */
const AT_ONCE = 8;
const SMALL = 1 / 256;
const SMALL_AT_ONCE = 512;

/** Size of the smallest envelope, as a fraction of a full transaction. */
const MIN_SIZE = 1 / ENOUGH_OBJECTS;

/**
 * Limit on the envelope data in the window while several workspaces send, in full transactions. The workspaces divide
 * it among themselves. For a workspace without data in the window, the limit is twice as high.
 */
const MAX_HELD = 2;

/** Maximum number of data reads per snapshot. */
const MAX_READS = 4;

/** Milliseconds for which a batch waits for a snapshot of the lane. A snapshot that takes longer counts as slow. */
const SLOW_MS = 500;

/** Maximum number of remembered ids of jobs that took effect and may still be in the lane. */
const MAX_DONE = 8192;

/** An envelope in the lane, with the id of its job. */
interface Known extends WaitingDelivery {
  job: string;
}

/** Data of a workspace in the window. `size` is a fraction of a full transaction. */
interface Held {
  units: number;
  size: number;
}

/** The ids of a lane's waiting jobs in one snapshot, in lane order. */
interface Snapshot {
  ids: readonly string[];
  tags: readonly (string | undefined)[];
  /**
   * Jobs whose data must not be used, because later jobs with the same tag are missing from the snapshot: see
   * `limitTags`.
   */
  ends: ReadonlySet<string>;
  /** Number of jobs when it was taken. */
  size: number;
  /** Time in milliseconds of `performance.now()` until which it can be used. */
  until: number;
}

export interface LaneWindowOptions {
  laneStore: Pick<LaneStore, 'window' | 'read'>;
  accounts: Accounts;
  fences: Pick<Fences, 'open' | 'close' | 'wait' | 'isOpen' | 'isPassed' | 'pass'>;
  lane: number;
  /** Latest envelope version that this worker can apply. */
  reads: number;
  deliver(jobId: string, wire: WireEnvelope): Delivery;
  /** Called when envelopes that waited at a fence may have become applicable. */
  onFence(): void;
  sizes?: SnapshotSizes | undefined;
}

/**
 * A worker's view of its lane: the leased envelope and the envelopes that wait after it, in lane order, taken from one
 * snapshot. A snapshot is used as a whole or replaced by a later one. Data is read only for the envelopes that the next
 * batches can take: the first ones of each workspace.
 */
export class LaneWindow {
  readonly #options: LaneWindowOptions;
  readonly #sizes: SnapshotSizes;
  readonly #afterSlow = createBackOff(SLOW_MS);
  /** Envelopes whose data have been read, by the ids of their jobs. */
  #read = new Map<string, Known>();
  /** Ids of jobs that took effect and may still be in the lane. */
  readonly #done = new Set<string>();
  #lease: Lease | undefined;
  #leased: Known | undefined;
  #envelopes: readonly Known[] = [];
  /** Number of job ids that the next snapshot reads. */
  #maxJobs: number;
  /** Whether the lane had more waiting jobs than `max` in the last snapshot. */
  #isDeep = false;
  #snapshot: Snapshot | undefined;
  /** When the last deep snapshot was requested, in milliseconds of `performance.now()`. */
  #lastDeepAt = Number.NEGATIVE_INFINITY;
  /** The lane at its fences. */
  readonly #openLane: OpenLane;
  /** Whether the window has entries of fences, and whether a fence has changed since the last `#arrangeFences`. */
  #hasFences = false;
  #hasFenceNews = false;
  /** Moving average of the envelope size, as a fraction of a full transaction. */
  #typical = 1;
  /** The latest snapshot request. Snapshots are taken one after the other. */
  #refreshing: Promise<unknown> = Promise.resolve();

  constructor(options: LaneWindowOptions) {
    this.#options = options;
    this.#sizes = options.sizes ?? SIZES;
    this.#maxJobs = this.#sizes.min;
    const onChange = () => {
      this.#hasFenceNews = true;
      options.onFence();
    };
    this.#openLane = { lane: options.lane, onChange };
    options.fences.open(this.#openLane);
  }

  /** Ends the use of the window. */
  close(): void {
    this.forget();
    this.#options.fences.close(this.#openLane);
  }

  /** Starts the window with the envelope that the lane store leased to this worker. */
  begin(lease: Lease, data: WireEnvelope): void {
    const cached = this.#read.get(lease.id);
    this.#lease = lease;
    this.#leased = cached ?? this.#open({ id: lease.id, data });
    this.#envelopes = [this.#leased];
    this.#arrangeFences();
  }

  /** Returns the envelopes from the head of the lane, without a gap. */
  envelopes(): readonly Known[] {
    if (this.#hasFenceNews) this.#arrangeFences();
    return this.#envelopes;
  }

  isDone(job: string): boolean {
    return this.#done.has(job);
  }

  /** Removes envelopes that a step has applied. @returns ids of the jobs that took effect */
  note(step: Step & { kind: 'applied' }): string[] {
    const ids = new Set(step.done);
    const gone = this.#envelopes.filter(({ id }) => ids.has(id));
    this.#noteDone(gone);
    const passed = gone.flatMap(({ fence }) => (fence?.isCarrier ? [fence.fence] : []));
    if (passed.length > 0) this.#options.fences.pass(passed);
    this.#envelopes = remaining(this.#envelopes, step) as Known[];
    for (const one of this.#envelopes) if (step.left.has(one.id)) this.#read.set(one.job, one);
    if (this.#leased && step.left.has(this.#leased.id)) this.#leased = this.#read.get(this.#leased.job);
    this.#arrangeFences();
    return gone.map(({ job }) => job);
  }

  /** Removes the entries of fences whose objects have taken effect. @returns ids of their jobs */
  removePassed(): string[] {
    const { fences } = this.#options;
    if (!this.#hasFences) return [];
    const isPassed = ({ fence }: Known) => fence !== undefined && fences.isPassed(fence.fence);
    const gone = this.#envelopes.filter(isPassed);
    if (gone.length === 0) return [];
    this.#noteDone(gone);
    this.#envelopes = this.#envelopes.filter((one) => !isPassed(one));
    this.#arrangeFences();
    return gone.map(({ job }) => job);
  }

  #noteDone(gone: readonly Known[]): void {
    for (const { job } of gone) {
      this.#done.add(job);
      this.#read.delete(job);
    }
    for (const job of this.#done) {
      if (this.#done.size <= MAX_DONE) break;
      this.#done.delete(job);
    }
  }

  /** Reports at which fences the lane waits, and finds out which fences in the window are open. */
  #arrangeFences(): void {
    const { fences, lane } = this.#options;
    this.#hasFenceNews = false;
    const entries = this.#envelopes.flatMap(({ fence }) => fence ?? []);
    this.#hasFences = entries.length > 0;
    fences.wait(this.#openLane, this.#hasFences ? fencesIn(this.#envelopes) : []);
    // Arrivals of this lane can open a fence of another lane, but not one of this lane.
    for (const entry of entries) entry.isOpen = fences.isOpen(entry.fence, lane);
  }

  /**
   * Takes a snapshot of the lane. Keeps the previous snapshot while the queue does not answer. Never rejects.
   * @returns false if the lease is lost, in which case the window is cleared, or if another lease is held now
   */
  refresh(lease: Lease): Promise<boolean> {
    const refreshed = this.#refreshing.then(async () => {
      if (this.#lease !== lease) return false;
      if (this.#afterSlow.isWaiting()) return true;
      const seen = this.#afterSlow.timed(this.#refresh(lease));
      return (await withTimeout(SLOW_MS, seen).catch(() => this.#afterSlow.after(SLOW_MS))) ?? true;
    });
    this.#refreshing = refreshed;
    return refreshed;
  }

  /** Clears the window because another worker may hold the lane. */
  forget(): void {
    this.#read.clear();
    this.#done.clear();
    this.#envelopes = [];
    this.#snapshot = undefined;
    this.#lease = undefined;
    this.#leased = undefined;
    this.#options.fences.wait(this.#openLane, []);
  }

  async #refresh(lease: Lease): Promise<boolean> {
    const before = this.#snapshot;
    const snapshot = await this.#takeSnapshot(lease);
    if (!snapshot) {
      if (this.#lease === lease) this.forget();
      return false;
    }
    if (this.#lease !== lease) return false;
    const isNew = snapshot !== before;
    if (isNew) this.#seeTags(snapshot.tags);
    const hasRead = await this.#readData(lease, snapshot);
    if (this.#lease !== lease) return false;
    if (isNew || hasRead) this.#show(snapshot);
    return true;
  }

  /** Takes a snapshot, or keeps the previous one. @returns undefined if the lease is lost */
  async #takeSnapshot(lease: Lease): Promise<Snapshot | undefined> {
    const { laneStore } = this.#options;
    const { min, max, deep } = this.#sizes;
    const now = performance.now();
    const isDeepDue = this.#isDeep && now - this.#lastDeepAt >= DEEP_MS;
    const { size = 0, until = now } = this.#snapshot ?? {};
    const isLarge = size > min && this.#envelopes.length >= size * MIN_KEPT_PART;
    const kept = this.#snapshot;
    if (isLarge && !isDeepDue && now < until) return (await laneStore.window(lease, 1)) && kept;
    this.#snapshot = undefined;
    if (isDeepDue) this.#lastDeepAt = now;
    const ids = await laneStore.window(lease, isDeepDue ? deep : this.#maxJobs);
    if (!ids) return undefined;
    this.#maxJobs = ids.length < min ? min : max;
    this.#isDeep = ids.length >= max;
    const limited =
      ids.length > max
        ? limitTags(
            ids.filter((id) => !this.#done.has(id)),
            max,
          )
        : { ids, tags: ids.map(tagIn), ends: NO_ENDS };
    return { ...limited, size: limited.ids.length, until: now + (isDeepDue ? DEEP_MS : KEPT_MS) };
  }

  /** Replaces the window by a snapshot: the leased envelope, then the waiting ones. */
  #show({ ids, tags, ends, size, until }: Snapshot): void {
    const envelopes: Known[] = [];
    const read = new Map<string, Known>();
    const left = { ids: [] as string[], tags: [] as (string | undefined)[] };
    if (this.#leased && !this.#done.has(this.#leased.job)) envelopes.push(this.#leased);
    for (const [index, job] of ids.entries()) {
      if (this.#done.has(job)) continue;
      left.ids.push(job);
      left.tags.push(tags[index]);
      const cached = ends.has(job) ? undefined : this.#read.get(job);
      if (cached) read.set(job, cached);
      envelopes.push(cached ?? { id: ledgerKey(job), job, tag: tags[index] });
    }
    this.#read = read;
    this.#envelopes = envelopes;
    this.#snapshot = { ...left, ends, size, until };
    this.#arrangeFences();
  }

  #seeTags(tags: readonly (string | undefined)[]): void {
    let last: string | undefined;
    for (const tag of tags) {
      if (tag === undefined || tag === SHARED || tag === last) continue;
      this.#options.accounts.see(tag);
      last = tag;
    }
  }

  /** Reads the envelope data that the next batch may need. @returns whether it has read any */
  async #readData(lease: Lease, snapshot: Snapshot): Promise<boolean> {
    for (let reads = 0; reads < MAX_READS; reads++) {
      const wanted = this.#wanted(snapshot);
      if (wanted.length === 0) return reads > 0;
      const jobs = await this.#options.laneStore.read(lease.lane, wanted, ENOUGH_BYTES);
      if (jobs.length === 0) return reads > 0;
      for (const job of jobs) {
        // Another worker has applied the missing job, or an operator has removed it. A new snapshot shows which
        // envelopes are left.
        if (!job) {
          snapshot.until = 0;
          return true;
        }
        this.#read.set(job.id, this.#open(job));
      }
    }
    return true;
  }

  /** Returns ids of envelopes to read now. */
  #wanted(snapshot: Snapshot): string[] {
    const atOnce = this.#typical < SMALL ? SMALL_AT_ONCE : AT_ONCE;
    const slice = this.#options.accounts.slice();
    return slice === undefined
      ? this.#wantedAlone(snapshot, atOnce)
      : this.#wantedShared(snapshot, { slice, atOnce });
  }

  /** Chooses envelopes up to the size of a full transaction, while one workspace sends alone. */
  #wantedAlone({ ids, ends }: Snapshot, atOnce: number): string[] {
    let fullness = this.#leased && !this.#done.has(this.#leased.job) ? this.#sizeOf(this.#leased) : 0;
    const wanted: string[] = [];
    for (const job of ids) {
      if (fullness >= 1 || wanted.length >= atOnce || ends.has(job)) break;
      if (this.#done.has(job)) continue;
      const cached = this.#read.get(job);
      if (cached?.isBarrier) break;
      if (!cached) wanted.push(job);
      fullness += cached ? this.#sizeOf(cached) : this.#typical;
    }
    return wanted;
  }

  /**
   * Chooses envelopes up to a slice of each workspace, while several workspaces send. Envelopes of workspaces without
   * data in the window come first. Data that the window holds for some workspaces does not prevent a read for another
   * one.
   */
  #wantedShared(
    { ids, tags, ends }: Snapshot,
    { slice, atOnce }: { slice: number; atOnce: number },
  ): string[] {
    const maxJobs = Math.min(1, MAX_HELD / new Set(tags).size);
    const held = new Map<string, Held>();
    let total = 0;
    if (this.#leased && !this.#done.has(this.#leased.job)) total += this.#hold(this.#leased, held);
    const first: string[] = [];
    const more: string[] = [];
    for (const [index, job] of ids.entries()) {
      if (this.#done.has(job) || ends.has(job)) continue;
      const cached = this.#read.get(job);
      if (cached?.isBarrier) break;
      if (cached) {
        total += this.#hold(cached, held);
        continue;
      }
      const tag = tags[index];
      if (tag === undefined || tag === SHARED) {
        // The envelope may belong to any workspace until it is read, so it blocks all later envelopes.
        if (total >= MAX_HELD) break;
        first.push(job);
      } else {
        const own = held.get(tag);
        if (own && (own.units >= slice || own.size >= maxJobs)) continue;
        if (total >= (own ? MAX_HELD : 2 * MAX_HELD)) continue;
        (own ? more : first).push(job);
        // The units of an unread envelope are unknown and count as a fixed part of a slice.
        held.set(tag, {
          units: (own?.units ?? 0) + slice / AT_ONCE,
          size: (own?.size ?? 0) + this.#typical,
        });
      }
      total += this.#typical;
    }
    return [...first, ...more].slice(0, atOnce);
  }

  /**
   * Adds the data of an envelope to the totals of its workspaces, by tag.
   * @returns the size of the envelope
   */
  #hold(envelope: Known, held: Map<string, Held>): number {
    const size = this.#sizeOf(envelope);
    for (const [workspaceId, part] of envelope.parts ?? []) {
      const tag = tagOf(workspaceId);
      const { units = 0, size: before = 0 } = held.get(tag) ?? {};
      const own = Math.max(part.objects / ENOUGH_OBJECTS, part.bytes / ENOUGH_BYTES);
      held.set(tag, { units: units + this.#options.accounts.unitsOf(workspaceId, part), size: before + own });
    }
    return size;
  }

  /** Returns the size of an envelope as a fraction of a full transaction; 1 fills a transaction. */
  #sizeOf({ parts }: Known): number {
    let [objects, bytes] = [0, 0];
    for (const part of parts?.values() ?? []) {
      objects += part.objects;
      bytes += part.bytes;
    }
    return Math.max(objects / ENOUGH_OBJECTS, bytes / ENOUGH_BYTES, MIN_SIZE);
  }

  #open({ id: job, data, characters }: Pick<StoredEnvelope, 'id' | 'data' | 'characters'>): Known {
    const { accounts, reads, deliver } = this.#options;
    const id = ledgerKey(job);
    const tag = tagIn(job);
    // A worker of the later release can apply it. It blocks all later envelopes.
    if (versionOf(data) > reads) return { id, job, tag, isBarrier: true };
    const delivery = deliver(job, data);
    const fence = this.#fenceIn(delivery);
    if (fence && !fence.isCarrier) {
      this.#typical += (MIN_SIZE - this.#typical) / 8;
      return { id, job, tag, fence };
    }
    const bytes = characters ?? jsonBytesAtLeast((data?.objects ?? null) as Json);
    const envelope = {
      ...waiting(fence ? { ...delivery, id: fence.fence.id } : delivery, bytes),
      ...{ job, tag, ...(fence && { fence }) },
    };
    for (const workspaceId of envelope.parts!.keys()) accounts.see(tagOf(workspaceId));
    this.#typical += (this.#sizeOf(envelope) - this.#typical) / 8;
    return envelope;
  }

  #fenceIn(delivery: Delivery): FenceEntry | undefined {
    const fence = fenceOf(delivery);
    if (!fence) return undefined;
    const isCarrier = fence.lanes[0] === delivery.lane;
    return { fence, isCarrier, workspaceId: workspaceOfFence(fence, delivery), isOpen: false };
  }
}

const NO_ENDS: ReadonlySet<string> = new Set();

/**
 * Keeps at most `max` jobs of one tag, so that a workspace with a long backlog does not fill the window. The next job
 * of such a tag is kept as an end: it stays unread, so that no later job of its workspace can take effect before the
 * missing ones.
 *
 * @param ids of jobs that have not taken effect. A job that has taken effect is omitted later, so as an end it would not block the
 * jobs after it
 */
function limitTags(ids: readonly string[], max: number): Pick<Snapshot, 'ids' | 'tags' | 'ends'> {
  const counts = new Map<string | undefined, number>();
  const kept: { ids: string[]; tags: (string | undefined)[]; ends: Set<string> } = {
    ids: [],
    tags: [],
    ends: new Set(),
  };
  for (const id of ids) {
    const tag = tagIn(id);
    const count = (counts.get(tag) ?? 0) + 1;
    counts.set(tag, count);
    if (count > max + 1) continue;
    if (count === max + 1) kept.ends.add(id);
    kept.ids.push(id);
    kept.tags.push(tag);
  }
  return kept;
}
