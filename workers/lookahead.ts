import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, Queue } from 'bullmq';
import type { Envelope } from '../src/jobs/envelope.ts';
import type { Json } from '../src/profile/json.ts';
import { jsonBytesAtLeast } from '../src/profile/json-size.ts';

/**
 * Objects, and bytes of their JSON text, from which on what was found is worth a transaction: more would only make
 * everyone wait longer.
 */
const ENOUGH_OBJECTS = 4000;
const ENOUGH_BYTES = 4_194_304;

/** Waiting jobs whose ids are read, and envelopes that are read at once: one may have 4 MB. */
const MOST_JOBS = 128;
const AT_ONCE = 8;

/** Milliseconds between two looks of one transaction; each pause is twice as long as the one before. */
const FIRST_PAUSE_MS = 4;
const LONGEST_PAUSE_MS = 250;

export interface WaitingJob {
  id: string;
  envelope: Envelope;
}

/**
 * Reads what waits in a lane behind the jobs that are being applied, so that the next transaction can take it along.
 * Nothing is taken out of the lane by that: the lane hands out the next job, and what was seen behind that one, in one
 * piece and in the lane's order, may be applied with it. Everything in front of it has taken effect by then, and who
 * else holds one of these jobs, since a lock has run out, meets the ledger.
 */
export function createLookahead(queue: Queue<Envelope>) {
  /** The job that is handed out next, and what was read behind it. */
  let next: string | undefined;
  let behind: WaitingJob[] = [];
  /** How much of what is enough has been found: 1 is all of it. */
  let found = 0;
  /** As much of one envelope, about: what is read and not taken along has been read in vain. */
  let typical = 1;
  /** Grows with every look: an older one finds nothing any more. */
  let round = 0;

  /** What may be applied together with `jobId`, which was handed out just now. Ends the present look. */
  function take(jobId: string): WaitingJob[] {
    const following = next === jobId ? behind : [];
    forget();
    return following;
  }

  function forget(): void {
    round++;
    next = undefined;
    behind = [];
    found = 0;
  }

  /**
   * Looks for what waits behind `last`, or behind the job in work when that is undefined, until it has found enough or
   * `applied` resolves. Never rejects.
   */
  async function look(last: string | undefined, applied: Promise<void>): Promise<void> {
    const mine = ++round;
    let over = false;
    void applied.then(() => {
      over = true;
    });
    for (let pause = FIRST_PAUSE_MS; !over; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      // A queue that is away has nothing to look at.
      const more = await lookOnce(last, mine).catch(() => false);
      if (!more) return;
      await sleep(pause);
    }
  }

  /** Whether there may be more to find, later. */
  async function lookOnce(last: string | undefined, mine: number): Promise<boolean> {
    const ids = await queue.getRanges(['waiting'], 0, MOST_JOBS - 1, true);
    if (mine !== round) return false;
    const known = next === undefined ? [] : [next, ...behind.map(({ id }) => id)];
    if (last !== undefined && known.length === 0) known.push(last);
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
    next ??= fresh.shift();
    while (fresh.length > 0 && found < 1) {
      const some = fresh.splice(0, Math.min(Math.ceil((1 - found) / typical), AT_ONCE));
      const jobs = await Promise.all(some.map((id) => queue.getJob(id)));
      if (mine !== round || !jobs.every(takeAlong)) return false;
    }
    return true;
  }

  /** Whether what follows the job may be taken along as well. */
  function takeAlong(job: Job<Envelope> | undefined): boolean {
    // At a fence the lane has to stand itself.
    if (!job || job.data?.fence !== undefined) return false;
    behind.push({ id: job.id!, envelope: job.data });
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
