import { Random } from './random.ts';

const realSetImmediate = globalThis.setImmediate;

/** A call that is due at a simulated time. */
interface Event {
  at: number;
  /** Events with the same time run in the order in which they were scheduled. */
  order: number;
  run(): void;
  /** The process that runs the event; undefined for an event of a server. */
  host: Host | undefined;
  isCancelled: boolean;
}

/** The wall clock when a simulation begins, in epoch milliseconds. */
export const EPOCH = Date.UTC(2030, 0, 1);

/** Cancels an event that has not run yet. */
export type Cancel = () => void;

/**
 * The simulated machines, which share one clock. When every process waits, time jumps to the next event. The seed determines
 * all delays, and so the order of all events.
 */
export class World {
  readonly random: Random;
  /** Milliseconds since the simulation began. */
  now = 0;
  /** Number of events that have run. */
  happened = 0;
  /** Errors that ended a simulated process. */
  readonly crashes: { host: string; error: unknown }[] = [];
  readonly #events = new EventQueue();
  #order = 0;
  readonly #held: Promise<void>[] = [];

  /** The wall clock when the simulation begins, in epoch milliseconds. */
  readonly epoch: number;

  constructor(seed: number, { epoch = EPOCH }: { epoch?: number } = {}) {
    this.random = new Random(seed);
    this.epoch = epoch;
  }

  /** The clock of a server, in epoch milliseconds. */
  wallClock(): number {
    return this.epoch + this.now;
  }

  /** Adds a line to the trace. The simulation sets it. */
  note: (what: string, details: Record<string, unknown>) => void = () => {};

  /** Schedules an event of a server, or of a process. */
  schedule(delay: number, run: () => void, host?: Host): Cancel {
    const event: Event = {
      at: this.now + Math.max(0, delay),
      order: this.#order++,
      run,
      host,
      isCancelled: false,
    };
    this.#events.push(event);
    return () => {
      event.isCancelled = true;
    };
  }

  /** Delays further events until real work has ended, for example a statement of Postgres. */
  hold(work: Promise<void>): void {
    this.#held.push(work);
  }

  async #heldWork(): Promise<void> {
    for (let work = this.#held.shift(); work; work = this.#held.shift()) await work;
  }

  /**
   * Runs events until a condition holds.
   * @param deadline simulated milliseconds
   * @returns whether the condition holds
   */
  async run(isOver: () => boolean, deadline: number): Promise<boolean> {
    while (!isOver()) {
      const event = this.#events.pop();
      if (!event || event.at > deadline) {
        if (event) this.#events.push(event);
        this.now = deadline;
        return isOver();
      }
      if (event.isCancelled) continue;
      this.now = event.at;
      const { host } = event;
      if (!host) {
        event.run();
        this.happened++;
        if (this.#held.length > 0) await this.#heldWork();
        continue;
      }
      if (!host.isAlive) continue;
      if (host.frozenUntil > this.now) {
        event.at = host.frozenUntil;
        event.order = this.#order++;
        this.#events.push(event);
        continue;
      }
      this.happened++;
      try {
        event.run();
      } catch (error) {
        host.crash(error);
      }
      await microtasks();
      if (this.#held.length > 0) await this.#heldWork();
    }
    return true;
  }
}

/** Resolves when all pending promise callbacks have run. */
function microtasks(): Promise<void> {
  return new Promise((resolve) => {
    realSetImmediate(resolve);
  });
}

/** A simulated process, which can be killed before any event and can be frozen. */
export class Host {
  readonly name: string;
  readonly world: World;
  readonly random: Random;
  readonly startedAt: number;
  isAlive = true;
  /** Simulated time in milliseconds until which the process is frozen. */
  frozenUntil = 0;
  /** Milliseconds by which the wall clock of the machine is ahead. */
  clockOffset = 0;
  readonly #onEnd: (() => void)[] = [];

  constructor(world: World, name: string) {
    this.world = world;
    this.name = name;
    this.random = world.random.fork(name);
    this.startedAt = world.now;
  }

  schedule(delay: number, run: () => void): Cancel {
    return this.world.schedule(delay, run, this);
  }

  /** Ends the process as SIGKILL does. No promise of the process continues. */
  kill(): void {
    if (!this.isAlive) return;
    this.isAlive = false;
    for (const end of this.#onEnd) end();
  }

  /** Ends the process because of an uncaught error. */
  crash(error: unknown): void {
    if (!this.isAlive) return;
    this.world.crashes.push({ host: this.name, error });
    this.kill();
  }

  /** Stops the process as SIGSTOP does. Events that are due meanwhile run when the process continues. */
  freeze(milliseconds: number): void {
    this.frozenUntil = Math.max(this.frozenUntil, this.world.now + milliseconds);
  }

  /** Adds a callback for the end of the process. Servers notice closed connections by it. */
  onEnd(callback: () => void): void {
    this.#onEnd.push(callback);
  }
}

/** A binary heap of events. */
class EventQueue {
  readonly #events: Event[] = [];

  push(event: Event): void {
    const events = this.#events;
    let index = events.length;
    events.push(event);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(event, events[parent]!)) break;
      events[index] = events[parent]!;
      index = parent;
    }
    events[index] = event;
  }

  pop(): Event | undefined {
    const events = this.#events;
    const first = events[0];
    const last = events.pop();
    if (first === undefined || last === undefined || events.length === 0) return first;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= events.length) break;
      if (child + 1 < events.length && isBefore(events[child + 1]!, events[child]!)) child++;
      if (!isBefore(events[child]!, last)) break;
      events[index] = events[child]!;
      index = child;
    }
    events[index] = last;
    return first;
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order);
}
