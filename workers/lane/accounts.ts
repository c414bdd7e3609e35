import { LRUCache } from 'lru-cache';
import { Neighbours } from '../../src/queue/turns.ts';
import type { PartSize } from '../batch/open.ts';
import type { AccountsView } from './next-batch.ts';

/** Maximum number of workspaces with an account in this process. The least recently used account is evicted. */
const MAX_WORKSPACES = 10_000;

/** Milliseconds of a slice: the processing time that one workspace gets per turn while other workspaces send too. */
export const SLICE_MS = 100;

/** Maximum number of slices that a workspace can be ahead of the others. Usage beyond this limit is forgotten. */
const MAX_DEBT = 4;

/** Bytes of JSON text, or of stored attributes, that count as one unit: they cost about as much as a small object. */
export const BYTES_PER_UNIT = 1024;

/** Pace of a process in units per millisecond: the initial value, and the bounds of the measured value. */
const FIRST_PACE = 20;
const MIN_PACE = 2;
const MAX_PACE = 200;

/** Minimum milliseconds of a batch from which the pace is measured. Shorter batches consist mostly of round trips. */
const MEASURED_MS = 10;

interface Account {
  /** Virtual time up to which the workspace has been served, in units. */
  servedUntil: number;
  /** Average units per object in recent batches; undefined until the first batch has been measured. */
  unitsPerObject: number | undefined;
  /**
   * Number of objects that the first round of its next batch loads; undefined: all objects of the batch. A round loads,
   * folds and writes objects together.
   */
  firstRound: number | undefined;
}

/** Resources that a batch has used. */
interface Used {
  /** Units by workspace. */
  units: ReadonlyMap<string, number>;
  /** Number of processed objects, by workspace. */
  objects: ReadonlyMap<string, number>;
  milliseconds: number;
  /** Whether the batch ended because its time ran out. */
  isCut: boolean;
}

/**
 * Tracks how much each workspace uses this process, over all its lanes. The measure is a unit: an object costs one unit
 * plus one unit per 1,024 bytes of its text and of the stored attributes that it loads. Virtual time advances as the
 * least served workspace is served. A workspace that returns after a pause starts at the current virtual time, so that
 * a pause costs and gains no units.
 */
export class Accounts implements AccountsView {
  readonly #accounts = new LRUCache<string, Account>({ max: MAX_WORKSPACES });
  readonly #clock: () => number;
  #virtualTime = 0;
  #pace = FIRST_PACE;
  #running = 0;
  #idleSince: number;
  readonly #neighbours: Neighbours;

  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
    this.#idleSince = clock();
    this.#neighbours = new Neighbours(clock);
  }

  /** Records that a workspace, given by its tag, has an envelope in a lane. */
  see(tag: string): void {
    this.#neighbours.meet(tag);
  }

  /** Returns the units of a slice, or undefined while only one workspace sends. */
  slice(): number | undefined {
    return this.#neighbours.areThere() ? this.#pace * SLICE_MS : undefined;
  }

  servedUntil(workspaceId: string): number {
    return Math.max(this.#virtualTime, this.#accounts.get(workspaceId)?.servedUntil ?? 0);
  }

  unitsOf(workspaceId: string, { objects, bytes }: PartSize): number {
    const unitsPerObject = this.#accounts.get(workspaceId)?.unitsPerObject ?? 1;
    return Math.max(1, objects * unitsPerObject, objects + bytes / BYTES_PER_UNIT);
  }

  /** Returns whether the units per object have been measured for all of these workspaces. */
  areMeasured(workspaceIds: Iterable<string>): boolean {
    for (const workspaceId of workspaceIds)
      if (this.#accounts.get(workspaceId)?.unitsPerObject === undefined) return false;
    return true;
  }

  /** Records the start of a batch that was chosen at this virtual time. */
  begin(start: number): void {
    // While the process was idle, no workspace waited. So virtual time advances by the units that the process could
    // have served, and usage from before counts less.
    if (this.#running === 0) this.#virtualTime += (this.#clock() - this.#idleSince) * this.#pace;
    this.#virtualTime = Math.max(this.#virtualTime, start);
    this.#running++;
  }

  /** Records the end of a batch, whether or not it took effect. */
  end(): void {
    this.#running--;
    if (this.#running === 0) this.#idleSince = this.#clock();
  }

  /** Charges the usage of a batch that took effect. */
  charge({ units, objects, milliseconds, isCut }: Used): void {
    let total = 0;
    for (const its of units.values()) total += its;
    if (total <= 0) return;
    if (milliseconds >= MEASURED_MS) {
      const pace = this.#pace + (total / milliseconds - this.#pace) / 8;
      this.#pace = Math.min(MAX_PACE, Math.max(MIN_PACE, pace));
    }
    // If the batch was cut, the units understate its cost: charge at least the elapsed time.
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
    }
  }

  /**
   * Returns the number of objects that the first round of the next batch may load; undefined: all objects of the batch.
   */
  firstRound(workspaceId: string): number | undefined {
    return this.#accounts.get(workspaceId)?.firstRound;
  }

  /**
   * Limits the first round of the next batch of this workspace. Call it after a batch of this workspace alone, with the
   * number of objects that fitted into its time, or with undefined if its time did not run out.
   */
  noteRound(workspaceId: string, objects: number | undefined): void {
    this.#accountOf(workspaceId).firstRound = objects;
  }

  /** Charges elapsed time when the units are unknown, for example after a failed batch. */
  chargeTime(workspaceId: string, milliseconds: number): void {
    this.#add(this.#accountOf(workspaceId), this.#pace * milliseconds);
  }

  #add(account: Account, units: number): void {
    const latest = this.#virtualTime + MAX_DEBT * SLICE_MS * this.#pace;
    account.servedUntil = Math.min(latest, Math.max(account.servedUntil, this.#virtualTime) + units);
  }

  #accountOf(workspaceId: string): Account {
    const existing = this.#accounts.get(workspaceId);
    if (existing) return existing;
    const made: Account = {
      servedUntil: this.#virtualTime,
      unitsPerObject: undefined,
      firstRound: undefined,
    };
    this.#accounts.set(workspaceId, made);
    return made;
  }
}
