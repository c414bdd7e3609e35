import { setTimeout as sleep } from 'node:timers/promises';
import { within } from '../../src/platform/lifecycle.ts';
import { backOff, createBackOff } from '../../src/platform/poll.ts';
import { type Json, jsonBytesAtLeast } from '../../src/profile/json.ts';
import type { LaneStore, Lease } from '../../src/queue/lane-store.ts';
import { READS, versionOf, type WireEnvelope } from '../../src/queue/wire.ts';

/**
 * Objects, and bytes of their JSON text, that are enough for a transaction: more would only make everyone wait longer.
 */
const ENOUGH_OBJECTS = 4000;
const ENOUGH_BYTES = 4_194_304;

/** Envelopes that are read at once, and where those before were small. */
const AT_ONCE = 8;
const SMALL = 1 / 256;
const SMALL_AT_ONCE = 512;

/** Milliseconds for which a lane in which somebody overtook is shared, and the part of enough that is enough meanwhile. */
const SHARED_MS = 10_000;
const SHARED_PART = 1 / 8;

/** Waiting jobs whose ids are read: the fewest, and the most where envelopes are small. */
const LEAST_JOBS = 128;
const MOST_JOBS = 1024;

/** An envelope that waits. */
export interface WaitingEnvelope {
  id: string;
  envelope: WireEnvelope;
  /** See `sizeOf`. */
  size: number;
}

/**
 * The prefix of a lane. It is the job that it hands out next, and those behind it without a gap, in the lane's order,
 * up to what is enough for a transaction. Knows only what it is told by who reads the lane.
 */
function createPrefix(reads: number) {
  let next: string | undefined;
  let behind: WaitingEnvelope[] = [];
  /** How much of what is enough there is: 1 is all of it. */
  let found = 0;
  /** By `performance.now()`: smaller transactions until then. */
  let sharedUntil = 0;
  /** As much of one envelope, about: what is read and not taken along has been read in vain. */
  let typical = 1;
  /** The job that was handed out last, or its size once that was asked for; the next one is about as large. */
  let head: WireEnvelope | number = 0;

  const isShared = () => performance.now() < sharedUntil;

  /** What is left of enough. Where small transactions matter the job that is handed out counts as well. */
  const missing = () => 1 - found - (isShared() ? sizeOfHead() / SHARED_PART : 0);

  function sizeOfHead(): number {
    if (typeof head !== 'number') head = sizeOf(head);
    return head;
  }

  function forget(): void {
    next = undefined;
    behind = [];
    found = 0;
  }

  /** What may be applied together with `jobId`, which was handed out just now. Forgets it. */
  function takeFor(jobId: string, envelope: WireEnvelope | undefined): WaitingEnvelope[] {
    head = envelope ?? 0;
    return next === jobId ? takeAll() : [];
  }

  function takeAll(): WaitingEnvelope[] {
    const all = behind;
    forget();
    return all;
  }

  /**
   * The ids with which the prefix goes on.
   *
   * @param ids the lane's first jobs
   * @param ahead those of them that are being applied
   * @returns 'lost' when a part of it has gone, 'torn' when something has come in between
   */
  function continuationIn(ids: string[], ahead: { id: string }[]): string[] | 'lost' | 'torn' {
    const known =
      next === undefined ? ahead.slice(-1).map(({ id }) => id) : [next, ...behind.map(({ id }) => id)];
    if (known.length === 0) return [...ids];
    const start = ids.indexOf(known[0]!);
    if (start >= 0 && known.every((id, index) => ids[start + index] === id))
      return ids.slice(start + known.length);
    const there = new Set(ids);
    // By somebody's hand or to another worker: what the lane holds now is not behind it.
    if (!known.every((id) => there.has(id))) return 'lost';
    // On Postgres an add that took its number earlier and committed later stands between them now, acknowledged. What
    // comes after all of them may have been sent because of it, and has to wait for it.
    return 'torn';
  }

  /** Notes which job is handed out next, unless that is known. */
  function beginWith(fresh: string[]): void {
    next ??= fresh.shift();
  }

  /** How many envelopes are worth reading now, and how many bytes of them: one may have 4 MB. */
  function wanted(): { jobs: number; bytes: number } {
    const left = missing();
    if (left <= 0) return { jobs: 0, bytes: 0 };
    const jobs = Math.min(Math.ceil(left / typical), typical < SMALL ? SMALL_AT_ONCE : AT_ONCE);
    return { jobs, bytes: Math.ceil(left * ENOUGH_BYTES * (isShared() ? SHARED_PART : 1)) };
  }

  /** How many jobs are worth looking at: as many as those before have made enough, and half as many again. */
  const inSight = (): number => Math.min(MOST_JOBS, Math.max(LEAST_JOBS, Math.ceil(1.5 / typical)));

  /** Takes the job along that comes next. @returns whether what follows it may be taken along as well */
  function add(job: { id: string; data: WireEnvelope; characters?: number } | undefined): boolean {
    // At a fence the lane has to stand itself, and at what another worker has to apply.
    if (!job || job.data?.fence !== undefined || versionOf(job.data) > reads) return false;
    const size = sizeOf(job.data, job.characters);
    behind.push({ id: job.id, envelope: job.data, size });
    found += size / (isShared() ? SHARED_PART : 1);
    typical = found / behind.length;
    return missing() > 0;
  }

  /** These have taken effect before their turn. @returns false: the prefix begins with one of them, and is no prefix then */
  function leaveOut(ids: string[]): boolean {
    if (next !== undefined && ids.includes(next)) return false;
    behind = behind.filter(({ id }) => !ids.includes(id));
    return true;
  }

  function share(): void {
    sharedUntil = performance.now() + SHARED_MS;
  }

  return { takeFor, takeAll, continuationIn, beginWith, wanted, inSight, add, forget, leaveOut, share };
}

/**
 * How much of what is enough for a transaction an envelope is: 1 is all of it.
 * @param characters of its text, where they are known: to count them goes through all of it
 */
export function sizeOf(envelope: WireEnvelope, characters?: number): number {
  // Of whatever a lane held: an envelope of another release may have a shape of its own.
  const objects: unknown = envelope?.objects;
  const count = Array.isArray(objects) ? objects.length : 1;
  const bytes = characters ?? jsonBytesAtLeast((objects ?? null) as Json);
  return Math.max(count / ENOUGH_OBJECTS, bytes / ENOUGH_BYTES);
}

/** Milliseconds from which on a read was slow, and for which a job waits for one at most. */
const SLOW_MS = 500;

/** Milliseconds between two reads during one transaction; each pause is twice as long as the one before. */
const FIRST_PAUSE_MS = 4;
const LONGEST_PAUSE_MS = 250;

/**
 * Prefetch: reads what waits in a lane behind the jobs that are being applied, so that the next transaction takes it
 * along. Nothing leaves the lane by that. The lane hands out the next job, and the prefix that was seen behind it may be
 * applied with it. Everything in front of it has taken effect by then. Who else holds one of these jobs, since a lock
 * has run out, meets the ledger.
 *
 * @param reads latest version of envelopes that is taken along
 */
export function createPrefetch(
  laneStore: Pick<LaneStore, 'head' | 'window' | 'read'>,
  lane: number,
  reads = READS,
) {
  const prefix = createPrefix(reads);
  const afterSlow = createBackOff(SLOW_MS);
  /** Grows with every read: an older one finds nothing any more. */
  let reading = 0;
  /** Grows with every look at the lane, and when what it has found is forgotten. */
  let looks = 0;
  /** The present read has not seen the lane yet. */
  let unseen = false;

  /**
   * What may be applied together with a job that was handed out just now. Ends the present read. Where the
   * transaction was quicker than the read, it waits for another one. Otherwise each envelope of a lane full of small ones
   * would have a transaction of its own. Never rejects.
   */
  async function take(lease: Lease, envelope?: WireEnvelope): Promise<WaitingEnvelope[]> {
    const following = prefix.takeFor(lease.id, envelope);
    const hurried = unseen;
    forget();
    if (following.length > 0 || !hurried || afterSlow.isWaiting()) return following;
    const mine = ++reading;
    await within(SLOW_MS, afterSlow.timed(readOnce([], mine, lease))).catch(() => afterSlow.after(SLOW_MS));
    const seen = mine === reading ? prefix.takeAll() : [];
    forget();
    return seen;
  }

  /**
   * For a batch that was cut: what waits behind the job in work and those that are applied with it. Ends the present
   * read, and begins another. Never rejects.
   */
  async function takeMore(
    lease: Lease,
    ahead: { id: string }[],
    applied: Promise<unknown>,
  ): Promise<WaitingEnvelope[]> {
    if (afterSlow.isWaiting()) return [];
    forget();
    const mine = ++reading;
    await within(SLOW_MS, afterSlow.timed(readOnce(ahead, mine, lease))).catch(() =>
      afterSlow.after(SLOW_MS),
    );
    if (mine !== reading) return [];
    const seen = prefix.takeAll();
    forget();
    void read([...ahead, ...seen], applied);
    return seen;
  }

  function forget(): void {
    reading++;
    prefix.forget();
    unseen = false;
  }

  /**
   * Reads what waits behind the job in work and those that are applied with it, until it has found enough or
   * `applied` resolves. Never rejects.
   */
  async function read(ahead: { id: string }[], applied: Promise<unknown>): Promise<void> {
    const mine = ++reading;
    let over = false;
    unseen = true;
    void applied.then(() => {
      over = true;
    });
    for (const nextPause = backOff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS); !over; ) {
      if (afterSlow.isWaiting()) return;
      // Undefined: the queue is away, and has nothing to read.
      const more = await afterSlow.timed(readOnce(ahead, mine));
      if (mine === reading) unseen = false;
      if (!more) return;
      await sleep(nextPause());
    }
  }

  /**
   * @param lease if it is for the job in work, and not for the one that is handed out next. What is found will be
   * applied whatever the lane hands out meanwhile: the lease has to be held still, and `ahead` all that waits in front
   * @returns whether there may be more to find, later
   */
  async function readOnce(ahead: { id: string }[], mine: number, lease?: Lease): Promise<boolean> {
    // When what was found is forgotten meanwhile, this look would go on in the middle: the next one begins in front.
    const look = ++looks;
    // Those that are applied now still wait.
    const most = ahead.length + prefix.inSight();
    const ids = lease ? await laneStore.window(lease, most) : await laneStore.head(lane, most);
    if (mine !== reading || !ids) return false;
    if (look !== looks) return true;
    if (lease && ahead.some(({ id }, place) => ids[place] !== id)) return false;
    const continuation = prefix.continuationIn(ids, ahead);
    if (continuation === 'lost') forget();
    if (typeof continuation === 'string') return false;
    // It will be handed out, envelope and all.
    if (!lease) prefix.beginWith(continuation);
    for (let rest = continuation; rest.length > 0; ) {
      const wanted = prefix.wanted();
      if (wanted.jobs === 0) break;
      const jobs = await laneStore.read(lane, rest.slice(0, wanted.jobs), wanted.bytes);
      if (mine !== reading) return false;
      if (look !== looks) return true;
      if (!jobs.every(prefix.add)) return false;
      rest = rest.slice(jobs.length);
    }
    return true;
  }

  /** These have taken effect before their turn, and wait no longer. */
  function leaveOut(ids: string[]): void {
    if (prefix.leaveOut(ids)) return;
    prefix.forget();
    looks++;
  }

  return {
    take,
    takeMore,
    read,
    forget,
    leaveOut,
    /** Somebody overtakes: for a while less is taken along, so that the next one waits less long. */
    makeWay: prefix.share,
  };
}
