import type { LaneEntry } from '../../../src/queue/lanes.ts';
import { encodeEnvelope, type WireEnvelope } from '../../../src/queue/wire.ts';
import type { Trace } from '../trace.ts';
import type { World } from '../world.ts';

/** An envelope in a lane. */
export interface Job {
  id: string;
  /** The JSON text of its data. */
  text: string;
  timestamp: number;
  /** Position in the order of all envelopes of the server. */
  sequence: number;
  /** Number of leases of the envelope that were lost. */
  stalled: number;
  /** The lease of the envelope. `until` is in simulated milliseconds. */
  lock: { token: string; until: number } | undefined;
}

/** A lane at the server. */
interface Lane {
  isLimited: boolean;
  isPaused: boolean;
  /** Waiting envelopes in the order of the lane. */
  waiting: Job[];
  active: Job[];
  failed: Job[];
  /** Ids of active envelopes that the next search for lost leases checks. */
  marked: Set<string>;
  /** Simulated time in milliseconds of the next search for lost leases. Earlier calls of `search` do nothing. */
  nextSearch: number;
}

/** An envelope that was handed out. */
export interface HandedOut {
  id: string;
  data: WireEnvelope;
  /** Number of earlier leases of the envelope that were lost. */
  stalled: number;
}

/** Thrown if the token does not hold the lock of an envelope. */
export class LockMissing extends Error {
  override name = 'LockMissing';
}

const newLane = (): Lane => ({
  isLimited: false,
  isPaused: false,
  waiting: [],
  active: [],
  failed: [],
  marked: new Set(),
  nextSearch: 0,
});

export interface LaneServerOptions {
  lanes: number;
  /**
   * With `postgres`, an add takes its numbers when it arrives, and becomes visible when it commits. So a later add may become
   * visible first.
   */
  kind: 'redis' | 'postgres';
  trace: Trace;
}

/** A server that holds lanes in memory, with the rules of BullMQ. */
export class LaneServer {
  readonly kind: 'redis' | 'postgres';
  readonly #world: World;
  readonly #trace: Trace;
  #lanes: Lane[];
  /** The lanes of the replica, as of the last copy. */
  #replica: Lane[] | undefined;
  #sequence = 0;
  /** Callbacks of idle workers, by lane. */
  readonly #sleepers: Set<() => void>[];

  constructor(world: World, { lanes, kind, trace }: LaneServerOptions) {
    this.#world = world;
    this.kind = kind;
    this.#trace = trace;
    this.#lanes = Array.from({ length: lanes }, newLane);
    this.#sleepers = Array.from({ length: lanes }, () => new Set());
  }

  #lane(lane: number): Lane {
    const state = this.#lanes[lane];
    if (!state) throw new Error(`there is no lane ${lane}`);
    return state;
  }

  limit(lane: number): void {
    this.#lane(lane).isLimited = true;
  }

  forgetLimit(lane: number): void {
    this.#lane(lane).isLimited = false;
  }

  pause(lane: number, isPaused: boolean): void {
    this.#lane(lane).isPaused = isPaused;
    if (!isPaused) this.#wake(lane);
  }

  /** Lets the locks of a lane expire. */
  expireLocks(lane: number): void {
    for (const job of this.#lane(lane).active) job.lock = undefined;
  }

  /** Removes all envelopes and limits, as a restart of a server without a disk does. */
  comeBackEmpty(): void {
    this.#lanes = this.#lanes.map(newLane);
  }

  isLimited(lane: number): boolean {
    return this.#lane(lane).isLimited;
  }

  /** Takes numbers for an add. `commit` makes all of its envelopes visible at once. */
  prepareAdd(entries: readonly LaneEntry[]): { commit(): void } {
    // BullMQ refuses ids that are whole numbers, because it generates such ids.
    for (const { id } of entries) if (/^\d+$/.test(id)) throw new Error(`the id ${id} is refused`);
    const numbered = entries.map((entry) => ({ ...entry, sequence: this.#sequence++ }));
    return {
      commit: () => {
        const wake = new Set<number>();
        for (const { lane, id, envelope, sequence } of numbered) {
          if (this.#has(lane, id)) {
            this.#trace.note('added before', { lane, job: id });
            continue;
          }
          const job: Job = {
            id,
            text: JSON.stringify(encodeEnvelope(envelope)),
            timestamp: this.#world.wallClock(),
            sequence,
            stalled: 0,
            lock: undefined,
          };
          const isLast = insert(this.#lane(lane).waiting, job);
          this.#trace.note(isLast ? 'added' : 'added in front', { lane, job: id });
          wake.add(lane);
        }
        for (const lane of wake) this.#wake(lane);
      },
    };
  }

  #has(lane: number, id: string): boolean {
    const { waiting, active, failed } = this.#lane(lane);
    return [waiting, active, failed].some((jobs) => jobs.some((job) => job.id === id));
  }

  /** Calls `wake` once when an envelope may be available. @returns a function that removes the callback */
  sleep(lane: number, wake: () => void): () => void {
    const sleepers = this.#sleepers[lane]!;
    sleepers.add(wake);
    return () => sleepers.delete(wake);
  }

  #wake(lane: number): void {
    const sleepers = this.#sleepers[lane]!;
    for (const wake of [...sleepers]) {
      sleepers.delete(wake);
      wake();
    }
  }

  /** Hands out the first envelope of a lane, if the limit allows. */
  take(lane: number, token: string, lockDuration: number): HandedOut | undefined {
    const laneState = this.#lane(lane);
    if (laneState.isPaused || (laneState.isLimited && laneState.active.length > 0)) return undefined;
    const job = laneState.waiting.shift();
    if (!job) return undefined;
    job.lock = { token, until: this.#world.now + lockDuration };
    laneState.active.push(job);
    this.#trace.note('handed out', { lane, job: job.id, to: token, stalled: job.stalled });
    return { id: job.id, data: JSON.parse(job.text), stalled: job.stalled };
  }

  /** Extends a lock. @returns false if the token does not hold the lock */
  renew(lane: number, { id, token }: { id: string; token: string }, lockDuration: number): boolean {
    const laneState = this.#lane(lane);
    const job = laneState.active.find((one) => one.id === id);
    if (!job || !this.#holds(job, token)) return false;
    job.lock = { token, until: this.#world.now + lockDuration };
    laneState.marked.delete(id);
    return true;
  }

  #holds(job: Job, token: string): boolean {
    return job.lock !== undefined && job.lock.token === token && job.lock.until > this.#world.now;
  }

  /** Removes a leased envelope that was handled. @throws {LockMissing} */
  finish(lane: number, { id, token }: { id: string; token: string }): void {
    const laneState = this.#lane(lane);
    const job = laneState.active.find((one) => one.id === id);
    if (!job || !this.#holds(job, token)) {
      this.#trace.note('finish refused', { lane, job: id, to: token });
      throw new LockMissing(`the lock of ${id} is missing`);
    }
    laneState.active = laneState.active.filter((one) => one !== job);
    laneState.marked.delete(id);
    this.#trace.note('finished', { lane, job: id, by: token });
    this.#wake(lane);
  }

  /** Moves an envelope whose handler threw an error to the failed envelopes. @throws {LockMissing} */
  fail(lane: number, { id, token }: { id: string; token: string }): void {
    const laneState = this.#lane(lane);
    const job = laneState.active.find((one) => one.id === id);
    if (!job || !this.#holds(job, token)) throw new LockMissing(`the lock of ${id} is missing`);
    laneState.active = laneState.active.filter((one) => one !== job);
    job.lock = undefined;
    laneState.failed.push(job);
    this.#trace.note('failed', { lane, job: id });
    this.#wake(lane);
  }

  /** Returns an envelope to the head of its lane. @throws {LockMissing} */
  giveBack(lane: number, { id, token }: { id: string; token: string }): void {
    const laneState = this.#lane(lane);
    const job = laneState.active.find((one) => one.id === id);
    if (!job || !this.#holds(job, token)) throw new LockMissing(`the lock of ${id} is missing`);
    laneState.active = laneState.active.filter((one) => one !== job);
    laneState.marked.delete(id);
    job.lock = undefined;
    laneState.waiting.unshift(job);
    this.#trace.note('given back', { lane, job: id, by: token });
    this.#wake(lane);
  }

  /** Searches for lost leases. An envelope waits again if the previous search marked it and it has no lock. */
  search(lane: number, interval: number): void {
    const laneState = this.#lane(lane);
    if (this.#world.now < laneState.nextSearch) return;
    laneState.nextSearch = this.#world.now + interval;
    for (const id of laneState.marked) {
      const job = laneState.active.find((one) => one.id === id);
      if (!job || (job.lock && job.lock.until > this.#world.now)) continue;
      laneState.active = laneState.active.filter((one) => one !== job);
      job.lock = undefined;
      job.stalled++;
      laneState.waiting.unshift(job);
      this.#trace.note('stalled', { lane, job: id });
    }
    laneState.marked = new Set(laneState.active.map(({ id }) => id));
    if (laneState.waiting.length > 0) this.#wake(lane);
  }

  /** Ends the lease of a lane. The next search returns its envelope to the lane. */
  endLease(lane: number): void {
    const laneState = this.#lane(lane);
    for (const job of laneState.active) {
      job.lock = undefined;
      laneState.marked.add(job.id);
    }
    laneState.nextSearch = 0;
    this.#trace.note('lease ended', { lane });
  }

  /** Returns the ids of the first waiting envelopes. */
  head(lane: number, max: number): string[] {
    return this.#lane(lane)
      .waiting.slice(0, max)
      .map(({ id }) => id);
  }

  /** Returns the ids of the first waiting envelopes. Undefined if the token does not hold the lease. */
  window(lane: number, { id, token }: { id: string; token: string }, max: number): string[] | undefined {
    const job = this.#lane(lane).active.find((one) => one.id === id);
    if (!job || !this.#holds(job, token)) {
      this.#trace.note('window refused', { lane, job: id, by: token });
      return undefined;
    }
    const ids = this.head(lane, max);
    this.#trace.note('window', {
      lane,
      job: id,
      by: token,
      max,
      waiting: ids.length,
      first: ids.slice(0, 8),
    });
    return ids;
  }

  find(lane: number, id: string): Job | undefined {
    const { waiting, active, failed } = this.#lane(lane);
    for (const jobs of [waiting, active, failed]) {
      const match = jobs.find((job) => job.id === id);
      if (match) return match;
    }
    return undefined;
  }

  /** Removes waiting envelopes. @returns false if the token does not hold the lease */
  complete(lane: number, { id, token }: { id: string; token: string }, ids: readonly string[]): boolean {
    const laneState = this.#lane(lane);
    const job = laneState.active.find((one) => one.id === id);
    if (!job || !this.#holds(job, token)) {
      this.#trace.note('complete refused', { lane, job: id, by: token });
      return false;
    }
    const completed = new Set(ids);
    laneState.waiting = laneState.waiting.filter((one) => !completed.has(one.id));
    this.#trace.note('completed', { lane, jobs: [...ids], by: token });
    return true;
  }

  /** Removes an envelope unless it is locked. */
  remove(lane: number, id: string): void {
    const laneState = this.#lane(lane);
    const isLocked = (job: Job) => job.lock !== undefined && job.lock.until > this.#world.now;
    const keep = (job: Job) => job.id !== id || isLocked(job);
    laneState.waiting = laneState.waiting.filter(keep);
    laneState.active = laneState.active.filter(keep);
    laneState.failed = laneState.failed.filter(keep);
    this.#trace.note('removed', { lane, job: id });
    this.#wake(lane);
  }

  depth(lane: number): { waiting: number; active: number } {
    const { waiting, active } = this.#lane(lane);
    return { waiting: waiting.length, active: active.length };
  }

  oldest(lane: number): Job | undefined {
    const { active, waiting } = this.#lane(lane);
    return active[0] ?? waiting[0];
  }

  range(lane: number, from: string, to: string): string[] {
    const { waiting, active } = this.#lane(lane);
    return [...waiting, ...active]
      .map(({ id }) => id)
      .filter((id) => id >= from && id <= to)
      .sort();
  }

  isPaused(lane: number): boolean {
    return this.#lane(lane).isPaused;
  }

  failed(lane: number, max: number): string[] {
    return this.#lane(lane)
      .failed.slice(0, max)
      .map(({ id }) => id);
  }

  isEmpty(): boolean {
    return this.#lanes.every(({ waiting, active }) => waiting.length + active.length === 0);
  }

  /** Copies everything to the replica. */
  replicate(): void {
    const copyOf = (jobs: Job[]) => jobs.map((job) => ({ ...job }));
    this.#replica = this.#lanes.map((lane) => ({
      ...lane,
      waiting: copyOf(lane.waiting),
      active: copyOf(lane.active),
      failed: copyOf(lane.failed),
      marked: new Set(lane.marked),
    }));
  }

  /** Continues with the lanes of the replica. Changes since the last copy are lost. */
  failOver(): void {
    const lanes = this.#replica;
    if (!lanes) return;
    const idsOf = (some: Lane[]) =>
      new Set(some.flatMap(({ waiting, active }) => [...waiting, ...active].map(({ id }) => id)));
    const [before, after] = [idsOf(this.#lanes), idsOf(lanes)];
    this.#lanes = lanes;
    this.replicate();
    this.#trace.note('failed over', {
      lost: [...before].filter((id) => !after.has(id)),
      returned: [...after].filter((id) => !before.has(id)),
    });
    for (const lane of lanes.keys()) this.#wake(lane);
  }
}

/**
 * Inserts a job by its sequence number. An add may commit later than one with a higher number.
 * @returns whether the job is the last one
 */
function insert(jobs: Job[], job: Job): boolean {
  let index = jobs.length;
  while (index > 0 && jobs[index - 1]!.sequence > job.sequence) index--;
  jobs.splice(index, 0, job);
  return index === jobs.length - 1;
}
