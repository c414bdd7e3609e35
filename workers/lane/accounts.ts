import { LRUCache } from 'lru-cache';
import { NEIGHBOURS_MS } from '../../src/queue/turns.ts';
import type { PartSize } from '../batch/open.ts';
import type { AccountsView } from './next-batch.ts';

/** Workspaces of which the process remembers what their objects take. */
const MOST_WORKSPACES = 10_000;

/** Milliseconds of a slice: what one workspace has at a time while others send as well. */
export const SLICE_MS = 100;

/** Slices that a workspace may be ahead of the others: what it has used beyond is forgotten. */
const MOST_DEBT = 4;

/** Bytes of JSON text, or of stored attributes, that cost about as much as a small object. */
export const BYTES_PER_UNIT = 1024;

/** Units per millisecond of a process: at its start, and the bounds of what is measured. */
const FIRST_PACE = 20;
const LEAST_PACE = 2;
const MOST_PACE = 200;

/** Shorter batches say little about the pace: they consist of round trips. */
const MEASURED_MS = 10;

/** The first and the longest rest of a workspace whose objects wait for a lock. */
const FIRST_REST_MS = 20;
const LONGEST_REST_MS = 1000;

interface Account {
  /** Virtual time, in units. */
  servedUntil: number;
  /** Units of an object, from recent batches; undefined: not measured yet. */
  unitsPerObject: number | undefined;
  mostObjects: number;
  /** Objects of the first round of its next batch; undefined: all. */
  firstRound: number | undefined;
  isApart: boolean;
  /** Milliseconds of the next rest, and when the present one ends. */
  rest: number;
  restsUntil: number;
}

/** What a batch has used. */
export interface Used {
  /** Units by workspace. */
  units: ReadonlyMap<string, number>;
  /** Objects that took effect, by workspace. */
  objects: ReadonlyMap<string, number>;
  milliseconds: number;
  /** Whether the batch ended because its time was over. */
  isCut: boolean;
}

/**
 * The use that workspaces make of this process, over all its lanes, in units: an object is one, and so are 1,024 bytes
 * of its text or of the stored attributes that it loads. Virtual time passes as the least served workspace is served.
 * A workspace that comes back begins at the virtual time, so that pauses neither cost nor gain anything.
 */
export class Accounts implements AccountsView {
  readonly #accounts = new LRUCache<string, Account>({ max: MOST_WORKSPACES });
  readonly #clock: () => number;
  #virtualTime = 0;
  #pace = FIRST_PACE;
  #running = 0;
  #idleSince: number;
  #lastSeen: string | undefined;
  #sharedUntil = Number.NEGATIVE_INFINITY;

  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
    this.#idleSince = clock();
  }

  /** Notes a workspace, by its tag, that has something in a lane. */
  see(tag: string): void {
    if (this.#lastSeen !== undefined && this.#lastSeen !== tag)
      this.#sharedUntil = this.#clock() + NEIGHBOURS_MS;
    this.#lastSeen = tag;
  }

  /** Units of a slice; undefined while one workspace sends alone. */
  slice(): number | undefined {
    return this.#clock() < this.#sharedUntil ? this.#pace * SLICE_MS : undefined;
  }

  servedUntil(workspaceId: string): number {
    return Math.max(this.#virtualTime, this.#accounts.get(workspaceId)?.servedUntil ?? 0);
  }

  /** Units by which a virtual time is ahead of that of the process. */
  ahead(servedUntil: number): number {
    return Math.max(0, servedUntil - this.#virtualTime);
  }

  unitsOf(workspaceId: string, { objects, bytes }: PartSize): number {
    const known = this.#accounts.get(workspaceId)?.unitsPerObject ?? 1;
    return Math.max(1, objects * known, objects + bytes / BYTES_PER_UNIT);
  }

  /** Whether it is known what the objects of all of these workspaces take. */
  areMeasured(workspaceIds: Iterable<string>): boolean {
    for (const workspaceId of workspaceIds)
      if (this.#accounts.get(workspaceId)?.unitsPerObject === undefined) return false;
    return true;
  }

  mostObjects(workspaceId: string): number {
    return this.#accounts.get(workspaceId)?.mostObjects ?? Number.POSITIVE_INFINITY;
  }

  isApart(workspaceId: string): boolean {
    return this.#accounts.get(workspaceId)?.isApart ?? false;
  }

  isResting(workspaceId: string): boolean {
    const account = this.#accounts.get(workspaceId);
    return account !== undefined && account.restsUntil > this.#clock();
  }

  /** A batch begins that was chosen with this virtual time. */
  begin(start: number): void {
    // Nobody was kept waiting by a process that was idle: what was used before counts less.
    if (this.#running === 0) this.#virtualTime += (this.#clock() - this.#idleSince) * this.#pace;
    this.#virtualTime = Math.max(this.#virtualTime, start);
    this.#running++;
  }

  /** The batch that was begun has ended, whether or not it took effect. */
  end(): void {
    this.#running--;
    if (this.#running === 0) this.#idleSince = this.#clock();
  }

  /** Charges what a batch has used, and forgets the troubles of its workspaces. */
  charge({ units, objects, milliseconds, isCut }: Used): void {
    let total = 0;
    for (const its of units.values()) total += its;
    if (total <= 0) return;
    if (milliseconds >= MEASURED_MS) {
      const pace = this.#pace + (total / milliseconds - this.#pace) / 8;
      this.#pace = Math.min(MOST_PACE, Math.max(LEAST_PACE, pace));
    }
    // What its units do not show was slow: it took its time all the same.
    const factor = isCut ? Math.max(1, (milliseconds * this.#pace) / total) : 1;
    for (const [workspaceId, its] of units) {
      const account = this.#accountOf(workspaceId);
      this.#add(account, its * factor);
      const count = objects.get(workspaceId) ?? 0;
      if (count > 0) {
        const each = (its * factor) / count;
        account.unitsPerObject =
          account.unitsPerObject === undefined ? each : (account.unitsPerObject + each) / 2;
      }
      account.isApart = false;
      account.mostObjects *= 2;
      account.rest = FIRST_REST_MS;
      account.restsUntil = 0;
    }
  }

  /** Objects that the first round of the workspace's next batch looks at; undefined: all. */
  firstRound(workspaceId: string): number | undefined {
    return this.#accounts.get(workspaceId)?.firstRound;
  }

  /** A batch of this workspace alone has ended, and the next round would have looked at so many objects. */
  noteRound(workspaceId: string, objects: number | undefined): void {
    this.#accountOf(workspaceId).firstRound = objects;
  }

  /** A batch of several workspaces has failed: each is tried by itself. */
  part(workspaceIds: Iterable<string>): void {
    for (const workspaceId of workspaceIds) this.#accountOf(workspaceId).isApart = true;
  }

  /** A statement about these objects of a workspace took too long: it is tried with fewer. */
  shrink(workspaceId: string, objects: number): void {
    const account = this.#accountOf(workspaceId);
    account.mostObjects = Math.max(1, Math.floor(Math.min(account.mostObjects, objects) / 4));
  }

  /** A workspace waits before it is tried again, longer each time. */
  letRest(workspaceId: string): void {
    const account = this.#accountOf(workspaceId);
    account.restsUntil = this.#clock() + account.rest;
    account.rest = Math.min(account.rest * 2, LONGEST_REST_MS);
  }

  /** Charges time of which nothing else is known. */
  chargeTime(workspaceId: string, milliseconds: number): void {
    this.#add(this.#accountOf(workspaceId), this.#pace * milliseconds);
  }

  #add(account: Account, units: number): void {
    const most = this.#virtualTime + MOST_DEBT * SLICE_MS * this.#pace;
    account.servedUntil = Math.min(most, Math.max(account.servedUntil, this.#virtualTime) + units);
  }

  #accountOf(workspaceId: string): Account {
    const known = this.#accounts.get(workspaceId);
    if (known) return known;
    const made: Account = {
      servedUntil: this.#virtualTime,
      unitsPerObject: undefined,
      mostObjects: Number.POSITIVE_INFINITY,
      firstRound: undefined,
      isApart: false,
      rest: FIRST_REST_MS,
      restsUntil: 0,
    };
    this.#accounts.set(workspaceId, made);
    return made;
  }
}
