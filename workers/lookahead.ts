import { setTimeout as sleep } from 'node:timers/promises';
import type { Envelope } from '../src/jobs/envelope.ts';
import type { Json } from '../src/profile/json.ts';
import { jsonBytesAtLeast } from '../src/profile/json-size.ts';
import type { Waiting } from '../src/queue/waiting.ts';
import { within } from '../src/within.ts';

/**
 * Objects, and bytes of their JSON text, from which on what was found is worth a transaction: more would only make
 * everyone wait longer.
 */
const ENOUGH_OBJECTS = 4000;
const ENOUGH_BYTES = 4_194_304;

/** Waiting jobs whose ids are read, and envelopes that are read at once: one may have 4 MB, unless those before were small. */
const MOST_JOBS = 128;
const AT_ONCE = 8;
const SMALL = 1 / 256;
const SMALL_AT_ONCE = 32;

/**
 * Milliseconds from which on a look was slow, for which a job waits for one at most, and times as long until the next:
 * where the queue is far away, what is read would keep everything else from it.
 */
const SLOW_MS = 500;
const REST = 4;

/** Milliseconds between two looks of one transaction; each pause is twice as long as the one before. */
const FIRST_PAUSE_MS = 4;
const LONGEST_PAUSE_MS = 250;

/** An envelope that waits. */
export interface WaitingEnvelope {
  id: string;
  envelope: Envelope;
}

/**
 * Reads what waits in a lane behind the jobs that are being applied, so that the next transaction can take it along.
 * Nothing is taken out of the lane by that: the lane hands out the next job, and what was seen behind that one, in one
 * piece and in the lane's order, may be applied with it. Everything in front of it has taken effect by then, and who
 * else holds one of these jobs, since a lock has run out, meets the ledger.
 */
export function createLookahead(waiting: Pick<Waiting<Envelope>, 'ids' | 'jobs'>) {
  /** The job that is handed out next, and what was read behind it. */
  let next: string | undefined;
  let behind: WaitingEnvelope[] = [];
  /** How much of what is enough has been found: 1 is all of it. */
  let found = 0;
  /** As much of one envelope, about: what is read and not taken along has been read in vain. */
  let typical = 1;
  /** Grows with every look: an older one finds nothing any more. */
  let round = 0;
  /** The present look has not seen the lane yet. */
  let unseen = false;
  /** No look begins before, by `performance.now()`. */
  let restUntil = 0;

  /**
   * What may be applied together with `jobId`, which was handed out just now. Ends the present look. Where the
   * transaction has been quicker than the look this waits for another one: each envelope of a lane that is full of small
   * ones would have a transaction of its own. Never rejects.
   */
  async function take(jobId: string): Promise<WaitingEnvelope[]> {
    const following = next === jobId ? behind : [];
    const hurried = unseen;
    forget();
    if (following.length > 0 || !hurried || isResting()) return following;
    const mine = ++round;
    await within(SLOW_MS, timed(lookOnce([], mine, true))).catch(() => rest(SLOW_MS));
    const seen = mine === round ? behind : [];
    forget();
    return seen;
  }

  function forget(): void {
    round++;
    next = undefined;
    behind = [];
    found = 0;
    unseen = false;
  }

  /**
   * Looks for what waits behind the job in work and those that are applied with it, until it has found enough or
   * `applied` resolves. Never rejects.
   */
  async function look(ahead: { id: string }[], applied: Promise<void>): Promise<void> {
    const mine = ++round;
    let over = false;
    unseen = true;
    void applied.then(() => {
      over = true;
    });
    for (let pause = FIRST_PAUSE_MS; !over; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      if (isResting()) return;
      const more = await timed(lookOnce(ahead, mine, false));
      if (mine === round) unseen = false;
      if (!more) return;
      await sleep(pause);
    }
  }

  const isResting = () => performance.now() < restUntil;

  /** What a look says; false when the queue is away, and has nothing to look at. */
  async function timed(look: Promise<boolean>): Promise<boolean> {
    const begun = performance.now();
    const more = await look.catch(() => false);
    const took = performance.now() - begun;
    if (took > SLOW_MS) rest(took);
    return more;
  }

  function rest(took: number): void {
    restUntil = performance.now() + REST * took;
  }

  /**
   * @param inWork whether it is for the job in work, and not for the one that is handed out next
   * @returns whether there may be more to find, later
   */
  async function lookOnce(ahead: { id: string }[], mine: number, inWork: boolean): Promise<boolean> {
    // Those that are applied now still wait.
    const ids = await waiting.ids(ahead.length + MOST_JOBS);
    if (mine !== round) return false;
    const known =
      next === undefined ? ahead.slice(-1).map(({ id }) => id) : [next, ...behind.map(({ id }) => id)];
    const places = known.map((id) => ids.indexOf(id));
    if (places.includes(-1)) {
      // Some has gone, by somebody's hand or to another worker: what the lane holds now is not behind it.
      forget();
      return false;
    }
    // On Postgres an add that took its number earlier and committed later stands between them now, acknowledged: what
    // comes after all of them may have been sent because of it, and has to wait for it.
    if (places.some((place, index) => place !== places[0]! + index)) return false;
    const fresh = ids.slice(known.length === 0 ? 0 : places.at(-1)! + 1);
    // It will be handed out, envelope and all.
    if (!inWork) next ??= fresh.shift();
    while (fresh.length > 0 && found < 1) {
      const atOnce = typical < SMALL ? SMALL_AT_ONCE : AT_ONCE;
      const some = fresh.splice(0, Math.min(Math.ceil((1 - found) / typical), atOnce));
      const jobs = await waiting.jobs(some);
      if (mine !== round || !jobs.every(takeAlong)) return false;
    }
    return true;
  }

  /** Whether what follows the job may be taken along as well. */
  function takeAlong(job: { id: string; data: Envelope } | undefined): boolean {
    // At a fence the lane has to stand itself.
    if (!job || job.data?.fence !== undefined) return false;
    behind.push({ id: job.id, envelope: job.data });
    found += shareOf(job.data);
    typical = found / behind.length;
    return found < 1;
  }

  return { take, look, forget };
}

/** How much of what is enough an envelope is. */
function shareOf(envelope: Envelope): number {
  // Of whatever a lane held: an envelope of another release may have a shape of its own.
  const objects: unknown = envelope?.objects;
  const count = Array.isArray(objects) ? objects.length : 1;
  return Math.max(count / ENOUGH_OBJECTS, jsonBytesAtLeast((objects ?? null) as Json) / ENOUGH_BYTES);
}
