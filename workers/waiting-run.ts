import type { Envelope } from '../src/jobs/envelope.ts';
import type { Json } from '../src/profile/json.ts';
import { jsonBytesAtLeast } from '../src/profile/json-size.ts';

/**
 * Objects, and bytes of their JSON text, from which on what was found is worth a transaction: more would only make
 * everyone wait longer.
 */
const ENOUGH_OBJECTS = 4000;
const ENOUGH_BYTES = 4_194_304;

/** Envelopes that are read at once: one may have 4 MB, unless those before were small. */
const AT_ONCE = 8;
const SMALL = 1 / 256;
const SMALL_AT_ONCE = 32;

/** An envelope that waits. */
export interface WaitingEnvelope {
  id: string;
  envelope: Envelope;
}

/**
 * The job that a lane hands out next, and an unbroken run of those behind it, in the lane's order, up to what is enough
 * for a transaction. Knows only what it is told by who looks at the lane.
 */
export function createWaitingRun() {
  let next: string | undefined;
  let behind: WaitingEnvelope[] = [];
  /** How much of what is enough there is: 1 is all of it. */
  let found = 0;
  /** As much of one envelope, about: what is read and not taken along has been read in vain. */
  let typical = 1;

  function forget(): void {
    next = undefined;
    behind = [];
    found = 0;
  }

  /** What may be applied together with `jobId`, which was handed out just now. Forgets it. */
  function takeFor(jobId: string): WaitingEnvelope[] {
    return next === jobId ? takeAll() : [];
  }

  function takeAll(): WaitingEnvelope[] {
    const all = behind;
    forget();
    return all;
  }

  /**
   * The ids with which the run goes on.
   *
   * @param ids the lane's first jobs
   * @param ahead those of them that are being applied
   * @returns 'lost' when a part of it has gone, 'torn' when something has come in between
   */
  function continuationIn(ids: string[], ahead: { id: string }[]): string[] | 'lost' | 'torn' {
    const known =
      next === undefined ? ahead.slice(-1).map(({ id }) => id) : [next, ...behind.map(({ id }) => id)];
    const places = known.map((id) => ids.indexOf(id));
    // By somebody's hand or to another worker: what the lane holds now is not behind it.
    if (places.includes(-1)) return 'lost';
    // On Postgres an add that took its number earlier and committed later stands between them now, acknowledged: what
    // comes after all of them may have been sent because of it, and has to wait for it.
    if (places.some((place, index) => place !== places[0]! + index)) return 'torn';
    return ids.slice(known.length === 0 ? 0 : places.at(-1)! + 1);
  }

  /** Notes which job is handed out next, unless that is known. */
  function beginWith(fresh: string[]): void {
    next ??= fresh.shift();
  }

  /** How many envelopes are worth reading now. */
  function wanted(): number {
    if (found >= 1) return 0;
    return Math.min(Math.ceil((1 - found) / typical), typical < SMALL ? SMALL_AT_ONCE : AT_ONCE);
  }

  /** Takes the job along that comes next. @returns whether what follows it may be taken along as well */
  function add(job: { id: string; data: Envelope } | undefined): boolean {
    // At a fence the lane has to stand itself.
    if (!job || job.data?.fence !== undefined) return false;
    behind.push({ id: job.id, envelope: job.data });
    found += shareOf(job.data);
    typical = found / behind.length;
    return found < 1;
  }

  return { takeFor, takeAll, continuationIn, beginWith, wanted, add, forget };
}

/** How much of what is enough an envelope is. */
function shareOf(envelope: Envelope): number {
  // Of whatever a lane held: an envelope of another release may have a shape of its own.
  const objects: unknown = envelope?.objects;
  const count = Array.isArray(objects) ? objects.length : 1;
  return Math.max(count / ENOUGH_OBJECTS, jsonBytesAtLeast((objects ?? null) as Json) / ENOUGH_BYTES);
}
