import { setTimeout as sleep } from 'node:timers/promises';
import type { Envelope } from '../src/jobs/envelope.ts';
import type { Waiting } from '../src/queue/waiting.ts';
import { within } from '../src/within.ts';
import { createRest } from './rest.ts';
import { createWaitingRun, type WaitingEnvelope } from './waiting-run.ts';

/** Waiting jobs whose ids are read. */
const MOST_JOBS = 128;

/** Milliseconds from which on a look was slow, and for which a job waits for one at most. */
const SLOW_MS = 500;

/** Milliseconds between two looks of one transaction; each pause is twice as long as the one before. */
const FIRST_PAUSE_MS = 4;
const LONGEST_PAUSE_MS = 250;

/**
 * Reads what waits in a lane behind the jobs that are being applied, so that the next transaction can take it along.
 * Nothing is taken out of the lane by that: the lane hands out the next job, and what was seen behind that one, in one
 * piece and in the lane's order, may be applied with it. Everything in front of it has taken effect by then, and who
 * else holds one of these jobs, since a lock has run out, meets the ledger.
 */
export function createLookahead(waiting: Pick<Waiting<Envelope>, 'ids' | 'jobs'>) {
  const run = createWaitingRun();
  const rest = createRest(SLOW_MS);
  /** Grows with every look: an older one finds nothing any more. */
  let round = 0;
  /** The present look has not seen the lane yet. */
  let unseen = false;

  /**
   * What may be applied together with `jobId`, which was handed out just now. Ends the present look. Where the
   * transaction has been quicker than the look this waits for another one: each envelope of a lane that is full of small
   * ones would have a transaction of its own. Never rejects.
   */
  async function take(jobId: string): Promise<WaitingEnvelope[]> {
    const following = run.takeFor(jobId);
    const hurried = unseen;
    forget();
    if (following.length > 0 || !hurried || rest.isResting()) return following;
    const mine = ++round;
    await within(SLOW_MS, rest.timed(lookOnce([], mine, true))).catch(() => rest.after(SLOW_MS));
    const seen = mine === round ? run.takeAll() : [];
    forget();
    return seen;
  }

  function forget(): void {
    round++;
    run.forget();
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
      if (rest.isResting()) return;
      // Undefined: the queue is away, and has nothing to look at.
      const more = await rest.timed(lookOnce(ahead, mine, false));
      if (mine === round) unseen = false;
      if (!more) return;
      await sleep(pause);
    }
  }

  /**
   * @param inWork whether it is for the job in work, and not for the one that is handed out next
   * @returns whether there may be more to find, later
   */
  async function lookOnce(ahead: { id: string }[], mine: number, inWork: boolean): Promise<boolean> {
    // Those that are applied now still wait.
    const ids = await waiting.ids(ahead.length + MOST_JOBS);
    if (mine !== round) return false;
    const continuation = run.continuationIn(ids, ahead);
    if (continuation === 'lost') forget();
    if (typeof continuation === 'string') return false;
    // It will be handed out, envelope and all.
    if (!inWork) run.beginWith(continuation);
    for (let wanted = run.wanted(); wanted > 0 && continuation.length > 0; wanted = run.wanted()) {
      const jobs = await waiting.jobs(continuation.splice(0, wanted));
      if (mine !== round || !jobs.every(run.add)) return false;
    }
    return true;
  }

  return { take, look, forget };
}
