import { Neighbours } from '../queue/turns.ts';

/** Milliseconds of work for requests in one turn of the event loop; then new requests are read from their sockets. */
const SLICE = 2;

/**
 * Requests that may begin without waiting in one turn of the event loop. They may all have waited for the same event,
 * so their work is still to come and not yet measured.
 */
const MAX_STARTS_PER_TURN = 8;

/**
 * Schedules the work of requests by workspace. Once a turn of the event loop is used up, further work waits for the
 * next turn, which takes one request of each workspace after the other. So a workspace that sends little waits for a
 * slice, and not for all requests of the others. Work is not delayed if there is less than a slice of it, or if a
 * workspace sends alone, because turns would split its requests into smaller flushes.
 */
export function createTurns(clock: () => number = () => performance.now()) {
  /** Waiting requests by workspace, in the order of the turns. */
  const lines = new Map<string, (() => void)[]>();
  const neighbours = new Neighbours(clock);
  /** Start of the current turn of the event loop; undefined if no work was done in it yet. */
  let began: number | undefined;
  /** Requests that have begun in this turn without waiting. */
  let begun = 0;
  let isScheduled = false;

  /** Await the result before work that takes long. Undefined: the work may begin at once. */
  function turn(owner: string): Promise<void> | undefined {
    neighbours.meet(owner);
    if (lines.size === 0) {
      if (!neighbours.areThere()) return undefined;
      const now = clock();
      if (began === undefined) {
        began = now;
        begun = 0;
        schedule();
      }
      if (now - began < SLICE && ++begun <= MAX_STARTS_PER_TURN) return undefined;
    }
    return new Promise((begin) => {
      const line = lines.get(owner);
      if (line) line.push(begin);
      else lines.set(owner, [begin]);
      schedule();
    });
  }

  function schedule(): void {
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(() => {
      isScheduled = false;
      began = lines.size > 0 ? clock() : undefined;
      if (began !== undefined) next();
    });
  }

  /** Starts one waiting request, and the next one when that request has done all its synchronous work. */
  function next(): void {
    const [first] = lines;
    if (!first) {
      schedule();
      return;
    }
    const [owner, line] = first;
    lines.delete(owner);
    line.shift()!();
    if (line.length > 0) lines.set(owner, line);
    // A tick that is scheduled in a microtask runs when the microtask queue is empty.
    queueMicrotask(() => process.nextTick(goOn));
  }

  function goOn(): void {
    if (clock() - began! < SLICE) next();
    else schedule();
  }

  return { turn };
}

export type Turns = ReturnType<typeof createTurns>;
