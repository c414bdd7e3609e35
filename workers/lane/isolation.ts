import { LRUCache } from 'lru-cache';
import { backOff } from '../../src/platform/poll.ts';
import type { Poison } from '../batch/apply.ts';
import { blameOf, countsAgainstObject, reasonOf, signatureOf, TRIES, triesOf } from '../batch/failures.ts';
import type { WorkItem } from '../batch/work-item.ts';

/** Number of batches into which the objects of a failed batch are split. */
const PARTS = 16;

/** Ratio of a batch that exceeded the timeouts of shared lanes to the next one. */
const SHRINKING = 4;

/** Limit on the objects of a batch that is the same as no limit, because no batch has more objects. */
const NO_LIMIT = 4096;

/** Maximum number of objects that have savepoints in one transaction, after Postgres has refused one of them. */
const MAX_SAVEPOINTS = 256;

/** Maximum number of isolated workspaces of a lane. The least recently used one is tried as a whole again. */
const MAX_WORKSPACES = 1000;

/** Milliseconds before a workspace is retried after a failure that may pass: first and maximum. */
const FIRST_REST_MS = 20;
const MAX_REST_MS = 1000;

/** Isolated workspaces as `nextBatch` sees them. */
export interface IsolationView {
  /** Returns the maximum number of objects of a workspace in one batch. */
  maxObjects(workspaceId: string): number;
  /** Returns whether a batch with objects of the workspace has failed, so that it gets batches of its own. */
  isApart(workspaceId: string): boolean;
  /** Returns whether the workspace pauses before its next attempt. */
  isResting(workspaceId: string): boolean;
}

/** The next objects of a workspace in its lane, which contain at least one that makes batches fail. */
interface Range {
  /** Maximum number of objects of a batch. */
  size: number;
  /** Number of objects in the range that have not taken effect yet. */
  remaining: number;
  /** Whether each object gets a savepoint. */
  each: boolean;
  /** Number of consecutive failures of batches that contained the range. */
  times: number;
}

/** A workspace whose batch has failed. */
interface Isolated {
  /** Nested ranges, the innermost last. Empty after a failure of a shared batch. */
  ranges: Range[];
  /** Maximum number of objects of a batch after timeouts of shared lanes; each batch that takes effect doubles it. */
  limit: number;
  /** Number of consecutive failures with the same signature. */
  times: number;
  signature: string | undefined;
  /** Clock time at which the current pause ends, and the milliseconds of the next one. */
  restsUntil: number;
  nextRest(): number;
  /** Whether a single object has exceeded the timeouts of shared lanes, so that it gets more time. */
  needsTime: boolean;
  /** Reasons of objects that become dead letters in the next attempt, by object id. */
  poison: Map<string, string>;
}

/** A failed batch of one workspace. */
interface FailedBatch {
  error: unknown;
  /** Number of objects in the batch. */
  objects: number;
  /** The object of a batch of one object; undefined if the batch failed before it was known. */
  item?: WorkItem | undefined;
}

/**
 * Isolates objects that make batches of a lane fail.
 *
 * - After a failure of a batch of several workspaces, each of them gets batches of its own.
 * - If such a batch fails, its objects are applied in 16 smaller batches. The objects of a smaller batch that fails are
 *   applied in 16 smaller ones again, down to a single object.
 * - An object becomes a dead letter when it fails alone and the failures of all batches with it, in a row, are as many
 *   as `triesOf` the error. For a timeout, these are three.
 * - If Postgres refuses an object of at most 256, each object gets a savepoint, and the refused ones become dead letters
 *   in the next transaction.
 * - After a timeout of shared lanes, a workspace gets a quarter of the objects, and twice as many after each success.
 *
 * Each batch is a prefix of the objects of its workspace in the lane, as any other batch is.
 *
 * The state stays in this process. A worker that takes the lane over starts again.
 */
export class Isolation implements IsolationView {
  readonly #isolated = new LRUCache<string, Isolated>({ max: MAX_WORKSPACES });
  readonly #clock: () => number;

  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
  }

  maxObjects(workspaceId: string): number {
    if (this.#isolated.size === 0) return Number.POSITIVE_INFINITY;
    const { limit, ranges } = this.#isolated.get(workspaceId) ?? { limit: NO_LIMIT, ranges: [] };
    const max = Math.min(limit, ranges.at(-1)?.size ?? NO_LIMIT);
    return max < NO_LIMIT ? max : Number.POSITIVE_INFINITY;
  }

  isApart(workspaceId: string): boolean {
    return this.#isolated.size > 0 && this.#isolated.has(workspaceId);
  }

  isResting(workspaceId: string): boolean {
    if (this.#isolated.size === 0) return false;
    return (this.#isolated.get(workspaceId)?.restsUntil ?? 0) > this.#clock();
  }

  /** Returns whether a batch of this workspace alone has failed. Such batches must not delay other workspaces. */
  isTroubled(workspaceId: string): boolean {
    const { ranges = [], times = 0, needsTime = false } = this.#isolated.get(workspaceId) ?? {};
    return ranges.length > 0 || times > 0 || needsTime;
  }

  /** Returns a view in which troubled workspaces pause. */
  untroubled(): IsolationView {
    return {
      maxObjects: (workspaceId) => this.maxObjects(workspaceId),
      isApart: (workspaceId) => this.isApart(workspaceId),
      isResting: (workspaceId) => this.isResting(workspaceId) || this.isTroubled(workspaceId),
    };
  }

  /** Returns whether the next batch of a workspace gives each object a savepoint. */
  hasSavepoints(workspaceId: string): boolean {
    return this.#isolated.get(workspaceId)?.ranges.at(-1)?.each ?? false;
  }

  /** Returns whether an object of the workspace has exceeded the timeouts of shared lanes. */
  needsTime(workspaceId: string): boolean {
    return this.#isolated.get(workspaceId)?.needsTime ?? false;
  }

  /** Returns the reasons of objects of the workspace that become dead letters. */
  poisonOf(workspaceId: string): Poison {
    return this.#isolated.get(workspaceId)?.poison ?? new Map();
  }

  /** Gives workspaces batches of their own until their next batch has taken effect. */
  separate(workspaceIds: Iterable<string>): void {
    for (const workspaceId of workspaceIds) this.#isolate(workspaceId);
  }

  /** Applies the next objects of a workspace one at a time. */
  applyOneByOne(workspaceId: string, objects: number): void {
    this.#isolate(workspaceId).ranges.push({ size: 1, remaining: objects, each: false, times: 0 });
  }

  /** Makes the batches of a workspace smaller after a timeout of shared lanes. This is not counted as a failure. */
  noteTimeout(workspaceId: string, objects: number): void {
    const isolated = this.#isolate(workspaceId);
    if (objects > 1) isolated.limit = Math.max(1, Math.floor(objects / SHRINKING));
    else isolated.needsTime = true;
  }

  /** Pauses a workspace. Each pause is twice as long as the one before, up to a maximum. */
  letRest(workspaceId: string): void {
    const isolated = this.#isolate(workspaceId);
    isolated.restsUntil = this.#clock() + isolated.nextRest();
  }

  /**
   * Records a failed batch of one workspace, and decides what its next batch does.
   *
   * @returns `split`: it has fewer objects, or savepoints. `retried`: it is the same, after a pause. `poison`: its only
   * object becomes a dead letter
   */
  noteFailure(workspaceId: string, { error, objects, item }: FailedBatch): 'split' | 'retried' | 'poison' {
    const isolated = this.#isolate(workspaceId);
    const signature = signatureOf(error);
    isolated.times = signature === isolated.signature ? isolated.times + 1 : 1;
    isolated.signature = signature;
    if (blameOf(error) === 'refused' && objects <= MAX_SAVEPOINTS && !isolated.ranges.at(-1)?.each) {
      isolated.ranges.push({ size: objects, remaining: objects, each: true, times: 0 });
      return 'split';
    }
    if (objects > 1 && isolated.times >= triesBeforeSplit(error)) {
      split(isolated, objects);
      return 'split';
    }
    if (
      objects <= 1 &&
      isolated.times >= triesOf(error) &&
      countsAgainstObject(error) &&
      item &&
      !isolated.poison.has(item.object.id)
    ) {
      isolated.poison.set(item.object.id, reasonOf(error));
      return 'poison';
    }
    this.letRest(workspaceId);
    return 'retried';
  }

  /** Records that objects of a workspace have taken effect. */
  noteSuccess(workspaceId: string, objects: number): void {
    if (this.#isolated.size === 0) return;
    const isolated = this.#isolated.get(workspaceId);
    if (!isolated) return;
    for (const range of isolated.ranges) range.remaining -= objects;
    while (isolated.ranges.length > 0 && isolated.ranges.at(-1)!.remaining <= 0) isolated.ranges.pop();
    isolated.limit *= 2;
    isolated.poison.clear();
    if (isolated.ranges.length === 0 && isolated.limit >= NO_LIMIT) this.#isolated.delete(workspaceId);
    else
      Object.assign(isolated, noFailures(), {
        times: isolated.ranges.at(-1)?.times ?? 0,
        signature: isolated.signature,
      });
  }

  #isolate(workspaceId: string): Isolated {
    const existing = this.#isolated.get(workspaceId);
    if (existing) return existing;
    const isolated = { ranges: [], poison: new Map(), limit: NO_LIMIT, ...noFailures() };
    this.#isolated.set(workspaceId, isolated);
    return isolated;
  }
}

/** Returns the state of a workspace before its first failure. */
function noFailures(): Omit<Isolated, 'ranges' | 'poison' | 'limit'> {
  return {
    ...{ times: 0, signature: undefined, needsTime: false },
    ...{ restsUntil: 0, nextRest: backOff(FIRST_REST_MS, MAX_REST_MS) },
  };
}

function split(isolated: Isolated, objects: number): void {
  const { times } = isolated;
  isolated.ranges.push({ size: Math.ceil(objects / PARTS), remaining: objects, each: false, times });
}

/** Returns how often a batch of several objects has to fail before it is split. Chance and conflicts may pass. */
function triesBeforeSplit(error: unknown): number {
  return blameOf(error) !== undefined || triesOf(error) === Number.POSITIVE_INFINITY ? 1 : TRIES;
}
