import { Neighbours } from '../queue/turns.ts';

/** Milliseconds of requests' work in one turn of the event loop; then new requests are read from their sockets. */
const SLICE = 2;

/** Requests that begin at once in one turn of the event loop: they may all come out of the same wait, with their work before them. */
const MOST_AT_ONCE = 8;

/**
 * Turns of workspaces at the processor. Work of requests waits once a turn of the event loop is used up, and goes on in
 * the next, one request of each workspace after the other. So whoever sends little waits for a slice, and not for all
 * that others have sent. With less work than a slice nothing waits, and nothing of a workspace that sends alone: in
 * turns fewer of its requests would leave together.
 */
export function createTurns(clock: () => number = () => performance.now()) {
  /** What waits, in the order of the workspaces' turns. */
  const lines = new Map<string, (() => void)[]>();
  const neighbours = new Neighbours(clock);
  /** When the present turn of the event loop began; undefined: nothing was done in it yet. */
  let began: number | undefined;
  /** Those that have begun in it without waiting. */
  let begun = 0;
  let isScheduled = false;

  /** To be awaited before work that takes long. Undefined: it may begin at once. */
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
      if (now - began < SLICE && ++begun <= MOST_AT_ONCE) return undefined;
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

  /** Lets one begin, and the next one when that has done what it can without waiting. */
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
    // A tick that is asked for in a microtask comes when no microtask is left.
    queueMicrotask(() => process.nextTick(goOn));
  }

  function goOn(): void {
    if (clock() - began! < SLICE) next();
    else schedule();
  }

  return { turn };
}

export type Turns = ReturnType<typeof createTurns>;
