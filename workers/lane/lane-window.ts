import { within } from '../../src/platform/lifecycle.ts';
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

/** Waiting jobs whose ids are read: the fewest, and the most once a lane has more. What stands behind those waits. */
const LEAST_JOBS = 256;
const MOST_JOBS = 4096;

/** Envelopes that are read at once, and where those before were small. */
const AT_ONCE = 8;
const SMALL = 1 / 256;
const SMALL_AT_ONCE = 512;

/** Reads of data in one look. */
const MOST_READS = 4;

/** Milliseconds for which a batch waits for a look at the lane, and from which on a look was slow. */
const SLOW_MS = 500;

/** Most ids of jobs that took effect and may still be in the lane. */
const MOST_DONE = 8192;

/** An envelope in the lane, with the id of its job. */
interface Known extends WaitingDelivery {
  job: string;
}

export interface LaneWindowOptions {
  laneStore: Pick<LaneStore, 'window' | 'read'>;
  accounts: Accounts;
  lane: number;
  /** Latest version of envelopes that is applied. */
  reads: number;
  deliver(jobId: string, wire: WireEnvelope): Delivery;
}

/**
 * What a worker sees of its lane: the leased envelope and what waits behind it, in the order of the lane, as one snapshot
 * shows it. A snapshot is used whole or replaced by a later one. Data are read of the envelopes that the next batches
 * may take: of each workspace the first ones.
 */
export class LaneWindow {
  readonly #options: LaneWindowOptions;
  readonly #afterSlow = createBackOff(SLOW_MS);
  /** Envelopes whose data have been read, by the ids of their jobs. */
  #read = new Map<string, Known>();
  /** Ids of jobs that took effect, and may still be in the lane. */
  readonly #done = new Set<string>();
  #lease: Lease | undefined;
  #leased: Known | undefined;
  #envelopes: readonly Known[] = [];
  /** Jobs whose ids are read. */
  #most = LEAST_JOBS;
  /** As much of what is enough for a transaction as an envelope usually is. */
  #typical = 1;
  /** Looks are made one after the other. */
  #looking: Promise<unknown> = Promise.resolve();

  constructor(options: LaneWindowOptions) {
    this.#options = options;
  }

  /** Begins with an envelope that was handed out. */
  begin(lease: Lease, data: WireEnvelope): void {
    const known = this.#read.get(lease.id);
    this.#lease = lease;
    this.#leased = known ?? this.#open({ id: lease.id, data });
    this.#envelopes = [this.#leased];
  }

  /** From the head of the lane, without a gap. */
  envelopes(): readonly Known[] {
    return this.#envelopes;
  }

  isDone(job: string): boolean {
    return this.#done.has(job);
  }

  /** Notes what has become of envelopes. @returns ids of their jobs that took effect */
  note(step: Step & { kind: 'applied' }): string[] {
    const gone = new Set(step.done);
    const jobs = this.#envelopes.flatMap(({ id, job }) => (gone.has(id) ? [job] : []));
    for (const job of jobs) {
      this.#done.add(job);
      this.#read.delete(job);
    }
    for (const job of this.#done) {
      if (this.#done.size <= MOST_DONE) break;
      this.#done.delete(job);
    }
    this.#envelopes = remaining(this.#envelopes, step) as Known[];
    for (const one of this.#envelopes) if (step.left.has(one.id)) this.#read.set(one.job, one);
    if (this.#leased && step.left.has(this.#leased.id)) this.#leased = this.#read.get(this.#leased.job);
    return jobs;
  }

  /**
   * Takes a snapshot of the lane. Keeps what it has while the queue does not answer. Never rejects.
   * @returns false: the lease is lost, and what was known is forgotten; or another one is held by now
   */
  look(lease: Lease): Promise<boolean> {
    const look = this.#looking.then(async () => {
      if (this.#lease !== lease) return false;
      if (this.#afterSlow.isWaiting()) return true;
      const seen = this.#afterSlow.timed(this.#look(lease));
      return (await within(SLOW_MS, seen).catch(() => this.#afterSlow.after(SLOW_MS))) ?? true;
    });
    this.#looking = look;
    return look;
  }

  /** Forgets everything: another worker has the lane, or may have. */
  forget(): void {
    this.#read.clear();
    this.#done.clear();
    this.#envelopes = [];
    this.#lease = undefined;
    this.#leased = undefined;
  }

  async #look(lease: Lease): Promise<boolean> {
    const { laneStore } = this.#options;
    const most = this.#most;
    const ids = await laneStore.window(lease, most);
    if (!ids) {
      if (this.#lease === lease) this.forget();
      return false;
    }
    this.#most = ids.length < LEAST_JOBS ? LEAST_JOBS : MOST_JOBS;
    if (this.#lease !== lease) return false;
    this.#seeTags(ids);
    await this.#readData(lease, ids);
    if (this.#lease !== lease) return false;
    this.#show(ids);
    return true;
  }

  /** Shows a snapshot: the leased envelope, and what waits. */
  #show(ids: readonly string[]): void {
    const envelopes: Known[] = [];
    const read = new Map<string, Known>();
    if (this.#leased && !this.#done.has(this.#leased.job)) envelopes.push(this.#leased);
    for (const job of ids) {
      if (this.#done.has(job)) continue;
      const known = this.#read.get(job);
      if (known) read.set(job, known);
      envelopes.push(known ?? { id: ledgerKey(job), job, tag: tagIn(job) });
    }
    this.#read = read;
    this.#envelopes = envelopes;
  }

  #seeTags(ids: readonly string[]): void {
    let last: string | undefined;
    for (const id of ids) {
      const tag = tagIn(id);
      if (tag === undefined || tag === SHARED || tag === last) continue;
      this.#options.accounts.see(tag);
      last = tag;
    }
  }

  /** Reads the data that the next batch may need. */
  async #readData(lease: Lease, ids: readonly string[]): Promise<void> {
    for (let reads = 0; reads < MOST_READS; reads++) {
      const wanted = this.#wanted(ids);
      if (wanted.length === 0) return;
      const jobs = await this.#options.laneStore.read(lease.lane, wanted, ENOUGH_BYTES);
      if (jobs.length === 0) return;
      for (const job of jobs) {
        // What is gone took effect elsewhere, or was removed by hand: nothing behind it is taken before the next look.
        if (!job) return;
        this.#read.set(job.id, this.#open(job));
      }
    }
  }

  /** Ids of the envelopes that are worth reading now: of each workspace as many as make a slice, up to a transaction. */
  #wanted(ids: readonly string[]): string[] {
    const { accounts } = this.#options;
    const slice = accounts.slice() ?? Number.POSITIVE_INFINITY;
    const units = new Map<string, number>();
    let found = this.#leased && !this.#done.has(this.#leased.job) ? this.#sizeOf(this.#leased) : 0;
    if (this.#leased) this.#count(this.#leased, units);
    const wanted: string[] = [];
    const atOnce = this.#typical < SMALL ? SMALL_AT_ONCE : AT_ONCE;
    for (const job of ids) {
      if (found >= 1 || wanted.length >= atOnce) break;
      if (this.#done.has(job)) continue;
      const known = this.#read.get(job);
      if (known?.isBarrier) break;
      const tag = tagIn(job);
      const isFull = tag !== undefined && tag !== SHARED && (units.get(tag) ?? 0) >= slice;
      if (known) {
        this.#count(known, units);
        if (!isFull) found += this.#sizeOf(known);
      } else if (!isFull) {
        wanted.push(job);
        found += this.#typical;
        // Of an envelope that has not been read, one is enough to find out how much it is.
        if (tag !== undefined && tag !== SHARED && slice < Number.POSITIVE_INFINITY)
          units.set(tag, (units.get(tag) ?? 0) + slice / AT_ONCE);
      }
    }
    return wanted;
  }

  /** Adds the units of an envelope to those of the tags of its workspaces. */
  #count({ parts }: Known, units: Map<string, number>): void {
    for (const [workspaceId, size] of parts ?? []) {
      const tag = tagOf(workspaceId);
      units.set(tag, (units.get(tag) ?? 0) + this.#options.accounts.unitsOf(workspaceId, size));
    }
  }

  /** As much of what is enough for a transaction as an envelope is: 1 is all of it. */
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
    // At a fence the lane has to stand itself, and at what another worker has to apply.
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
