import { withTimeout } from '../../src/platform/lifecycle.ts';
import { createBackOff } from '../../src/platform/poll.ts';
import { type Json, jsonBytesAtLeast } from '../../src/profile/json.ts';
import type { LaneStore, Lease, StoredEnvelope } from '../../src/queue/lane-store.ts';
import { SHARED, tagIn, tagOf } from '../../src/queue/lanes.ts';
import { versionOf, type WireEnvelope } from '../../src/queue/wire.ts';
import { type Delivery, fenceOf, ledgerKey } from '../batch/open.ts';
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
 * Number of waiting jobs whose ids a snapshot reads: `MIN_JOBS` at first, and `MAX_JOBS` if the previous snapshot
 * was full. Jobs after these are not considered yet.
 */
const MIN_JOBS = 256;
const MAX_JOBS = 4096;

/**
 * Maximum number of envelopes whose data one command reads: `AT_ONCE`, or `SMALL_AT_ONCE` if an average envelope fills
 * less than the part `SMALL` of a transaction.
 */
const AT_ONCE = 8;
const SMALL = 1 / 256;
const SMALL_AT_ONCE = 512;

/**
 * Limit on the envelope data in the window while several workspaces send, in full transactions. The workspaces divide
 * it among themselves. For a workspace without data in the window, the limit is twice as high.
 */
const MAX_HELD = 4;

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

interface LaneWindowOptions {
  laneStore: Pick<LaneStore, 'window' | 'read'>;
  accounts: Accounts;
  lane: number;
  /** Latest envelope version that this worker can apply. */
  reads: number;
  deliver(jobId: string, wire: WireEnvelope): Delivery;
}

/**
 * A worker's view of its lane: the leased envelope and the envelopes that wait after it, in lane order, taken from one
 * snapshot. A snapshot is used as a whole or replaced by a later one. Data is read only for the envelopes that the next
 * batches can take: the first ones of each workspace.
 */
export class LaneWindow {
  readonly #options: LaneWindowOptions;
  readonly #afterSlow = createBackOff(SLOW_MS);
  /** Envelopes whose data have been read, by the ids of their jobs. */
  #read = new Map<string, Known>();
  /** Ids of jobs that took effect and may still be in the lane. */
  readonly #done = new Set<string>();
  #lease: Lease | undefined;
  #leased: Known | undefined;
  #envelopes: readonly Known[] = [];
  /** Number of job ids that the next snapshot reads. */
  #maxJobs = MIN_JOBS;
  /** Moving average of the envelope size, as a fraction of a full transaction. */
  #typical = 1;
  /** The latest snapshot request. Snapshots are taken one after the other. */
  #refreshing: Promise<unknown> = Promise.resolve();

  constructor(options: LaneWindowOptions) {
    this.#options = options;
  }

  /** Starts the window with the envelope that the lane store leased to this worker. */
  begin(lease: Lease, data: WireEnvelope): void {
    const known = this.#read.get(lease.id);
    this.#lease = lease;
    this.#leased = known ?? this.#open({ id: lease.id, data });
    this.#envelopes = [this.#leased];
  }

  /** Returns the envelopes from the head of the lane, without a gap. */
  envelopes(): readonly Known[] {
    return this.#envelopes;
  }

  isDone(job: string): boolean {
    return this.#done.has(job);
  }

  /** Removes envelopes that a step has applied. @returns ids of the jobs that took effect */
  note(step: Step & { kind: 'applied' }): string[] {
    const gone = new Set(step.done);
    const jobs = this.#envelopes.flatMap(({ id, job }) => (gone.has(id) ? [job] : []));
    for (const job of jobs) {
      this.#done.add(job);
      this.#read.delete(job);
    }
    for (const job of this.#done) {
      if (this.#done.size <= MAX_DONE) break;
      this.#done.delete(job);
    }
    this.#envelopes = remaining(this.#envelopes, step) as Known[];
    for (const one of this.#envelopes) if (step.left.has(one.id)) this.#read.set(one.job, one);
    if (this.#leased && step.left.has(this.#leased.id)) this.#leased = this.#read.get(this.#leased.job);
    return jobs;
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
    this.#lease = undefined;
    this.#leased = undefined;
  }

  async #refresh(lease: Lease): Promise<boolean> {
    const { laneStore } = this.#options;
    const maxJobs = this.#maxJobs;
    const ids = await laneStore.window(lease, maxJobs);
    if (!ids) {
      if (this.#lease === lease) this.forget();
      return false;
    }
    this.#maxJobs = ids.length < MIN_JOBS ? MIN_JOBS : MAX_JOBS;
    if (this.#lease !== lease) return false;
    const tags = ids.map(tagIn);
    this.#seeTags(tags);
    await this.#readData(lease, ids, tags);
    if (this.#lease !== lease) return false;
    this.#show(ids, tags);
    return true;
  }

  /** Replaces the window by a new snapshot: the leased envelope, then the waiting ones. */
  #show(ids: readonly string[], tags: readonly (string | undefined)[]): void {
    const envelopes: Known[] = [];
    const read = new Map<string, Known>();
    if (this.#leased && !this.#done.has(this.#leased.job)) envelopes.push(this.#leased);
    for (const [index, job] of ids.entries()) {
      if (this.#done.has(job)) continue;
      const known = this.#read.get(job);
      if (known) read.set(job, known);
      envelopes.push(known ?? { id: ledgerKey(job), job, tag: tags[index] });
    }
    this.#read = read;
    this.#envelopes = envelopes;
  }

  #seeTags(tags: readonly (string | undefined)[]): void {
    let last: string | undefined;
    for (const tag of tags) {
      if (tag === undefined || tag === SHARED || tag === last) continue;
      this.#options.accounts.see(tag);
      last = tag;
    }
  }

  /** Reads the envelope data that the next batch may need. */
  async #readData(
    lease: Lease,
    ids: readonly string[],
    tags: readonly (string | undefined)[],
  ): Promise<void> {
    for (let reads = 0; reads < MAX_READS; reads++) {
      const wanted = this.#wanted(ids, tags);
      if (wanted.length === 0) return;
      const jobs = await this.#options.laneStore.read(lease.lane, wanted, ENOUGH_BYTES);
      if (jobs.length === 0) return;
      for (const job of jobs) {
        // Another worker has applied the missing job, or an operator has removed it. The next snapshot shows which
        // envelopes are left.
        if (!job) return;
        this.#read.set(job.id, this.#open(job));
      }
    }
  }

  /** Returns ids of envelopes to read now. */
  #wanted(ids: readonly string[], tags: readonly (string | undefined)[]): string[] {
    const atOnce = this.#typical < SMALL ? SMALL_AT_ONCE : AT_ONCE;
    const slice = this.#options.accounts.slice();
    return slice === undefined
      ? this.#wantedAlone(ids, atOnce)
      : this.#wantedShared(ids, tags, { slice, atOnce });
  }

  /** Chooses envelopes up to the size of a full transaction, while one workspace sends alone. */
  #wantedAlone(ids: readonly string[], atOnce: number): string[] {
    let found = this.#leased && !this.#done.has(this.#leased.job) ? this.#sizeOf(this.#leased) : 0;
    const wanted: string[] = [];
    for (const job of ids) {
      if (found >= 1 || wanted.length >= atOnce) break;
      if (this.#done.has(job)) continue;
      const known = this.#read.get(job);
      if (known?.isBarrier) break;
      if (!known) wanted.push(job);
      found += known ? this.#sizeOf(known) : this.#typical;
    }
    return wanted;
  }

  /**
   * Chooses envelopes up to a slice of each workspace, while several workspaces send. Envelopes of workspaces without
   * data in the window come first. Data that the window holds for some workspaces does not prevent a read for another
   * one.
   */
  #wantedShared(
    ids: readonly string[],
    tags: readonly (string | undefined)[],
    { slice, atOnce }: { slice: number; atOnce: number },
  ): string[] {
    const maxJobs = Math.min(1, MAX_HELD / new Set(tags).size);
    const held = new Map<string, Held>();
    let total = 0;
    if (this.#leased && !this.#done.has(this.#leased.job)) total += this.#hold(this.#leased, held);
    const first: string[] = [];
    const more: string[] = [];
    for (const [index, job] of ids.entries()) {
      if (this.#done.has(job)) continue;
      const known = this.#read.get(job);
      if (known?.isBarrier) break;
      if (known) {
        total += this.#hold(known, held);
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
  #hold(known: Known, held: Map<string, Held>): number {
    const size = this.#sizeOf(known);
    for (const [workspaceId, part] of known.parts ?? []) {
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
    return Math.max(objects / ENOUGH_OBJECTS, bytes / ENOUGH_BYTES, 1 / ENOUGH_OBJECTS);
  }

  #open({ id: job, data, characters }: Pick<StoredEnvelope, 'id' | 'data' | 'characters'>): Known {
    const { accounts, reads, deliver } = this.#options;
    const id = ledgerKey(job);
    const tag = tagIn(job);
    // A fence is applied when it is leased, and an envelope of a later release by another worker. Both block all later
    // envelopes.
    if (versionOf(data) > reads) return { id, job, tag, isBarrier: true };
    const delivery = deliver(job, data);
    if (fenceOf(delivery)) return { id, job, tag, isBarrier: true };
    const bytes = characters ?? jsonBytesAtLeast((data?.objects ?? null) as Json);
    const known = { ...waiting(delivery, bytes), job, tag };
    for (const workspaceId of known.parts!.keys()) accounts.see(tagOf(workspaceId));
    this.#typical += (this.#sizeOf(known) - this.#typical) / 8;
    return known;
  }
}
