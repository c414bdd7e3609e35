import { Random } from './random.ts';

/** Taken before a simulated process can replace anything. */
const realSetImmediate = globalThis.setImmediate;

/** Something that happens at a moment of the simulated time. */
interface Event {
  at: number;
  /** Events of one moment happen in the order in which they were scheduled. */
  order: number;
  run(): void;
  /** The process in which it happens; absent: it happens at a server. */
  host: Host | undefined;
  isCancelled: boolean;
}

/** Cancels an event that has not happened yet. */
export type Cancel = () => void;

/**
 * The simulated machines, with one clock. Time passes only between events: it jumps to the next one when every process
 * waits. The seed decides all delays, so it decides the order of all events.
 */
export class World {
  readonly random: Random;
  /** Milliseconds since the simulation began. */
  now = 0;
  /** Events that have happened. */
  happened = 0;
  /** Errors that ended a simulated process, which no error may do. */
  readonly crashes: { host: string; error: unknown }[] = [];
  readonly #events = new EventQueue();
  #order = 0;

  /** The wall clock when the simulation begins, in epoch milliseconds. */
  readonly epoch: number;

  constructor(seed: number, { epoch = Date.UTC(2030, 0, 1) }: { epoch?: number } = {}) {
    this.random = new Random(seed);
    this.epoch = epoch;
  }

  /** The clock of a server, in epoch milliseconds. */
  wallClock(): number {
    return this.epoch + this.now;
  }

  /** Hears of what happens; set by the simulation. */
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

  /**
   * Lets events happen until a condition holds.
   * @param deadline a moment of the simulated time
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
    }
    return true;
  }
}

/** Resolves when no promise of a process can go on any more without another event. */
function microtasks(): Promise<void> {
  return new Promise((resolve) => {
    realSetImmediate(resolve);
  });
}

/** A simulated process: it can be killed at any event, and frozen. */
export class Host {
  readonly name: string;
  readonly world: World;
  readonly random: Random;
  readonly startedAt: number;
  isAlive = true;
  /** A moment of the simulated time. */
  frozenUntil = 0;
  /** Milliseconds by which the clock of its machine is wrong. */
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

  /** Ends the process as SIGKILL does: none of its promises goes on. */
  kill(): void {
    if (!this.isAlive) return;
    this.isAlive = false;
    for (const end of this.#onEnd) end();
  }

  /** Ends the process because of an error that nothing has caught. */
  crash(error: unknown): void {
    if (!this.isAlive) return;
    this.world.crashes.push({ host: this.name, error });
    this.kill();
  }

  /** Stops the process as SIGSTOP does; events that are due meanwhile happen when it goes on. */
  freeze(milliseconds: number): void {
    this.frozenUntil = Math.max(this.frozenUntil, this.world.now + milliseconds);
  }

  /** Hears of the end of the process, as servers hear of a closed connection. */
  onEnd(hear: () => void): void {
    this.#onEnd.push(hear);
  }
}

/** A binary heap of events. */
class EventQueue {
  readonly #events: Event[] = [];

  push(event: Event): void {
    const events = this.#events;
    let place = events.length;
    events.push(event);
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!isBefore(event, events[parent]!)) break;
      events[place] = events[parent]!;
      place = parent;
    }
    events[place] = event;
  }

  pop(): Event | undefined {
    const events = this.#events;
    const first = events[0];
    const last = events.pop();
    if (first === undefined || last === undefined || events.length === 0) return first;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= events.length) break;
      if (child + 1 < events.length && isBefore(events[child + 1]!, events[child]!)) child++;
      if (!isBefore(events[child]!, last)) break;
      events[place] = events[child]!;
      place = child;
    }
    events[place] = last;
    return first;
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order);
}
