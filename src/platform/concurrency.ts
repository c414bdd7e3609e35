/**
 * Opens a resource when it is first needed and shares it with later callers. A failed opening is not kept: the next call
 * opens the resource again.
 */
export function openOnce<Given extends unknown[], Opened>(
  open: (...given: Given) => Promise<Opened>,
): (...given: Given) => Promise<Opened> {
  let opened: Promise<Opened> | undefined;
  return (...given) => {
    opened ??= open(...given).catch((error) => {
      opened = undefined;
      throw error;
    });
    return opened;
  };
}

export interface SemaphoreSettings {
  /** How many work at a time. */
  atOnce: number;
  /** How many of one owner do. */
  atOnceOfOne: number;
  /** How many may wait; whoever comes behind them is refused at once. */
  mostWaiting: number;
  /** How many of one owner may. */
  mostWaitingOfOne: number;
  /** How long one waits, in ms. */
  patience: number;
  /** Owners whose work takes long: together they have one place less than there are. */
  isHeavy?(owner: string): boolean;
  /** Whether nobody is to be refused for waiting just now. */
  isExcused?(): boolean;
  /** What a refusal is. */
  refusal(reason: 'too many wait' | 'waited too long'): Error;
}

interface Owner {
  name: string;
  running: number;
  /** In the order in which they came. */
  waiting: Set<() => void>;
}

/**
 * A fair semaphore: lets so much work at once use something scarce. The owners come in turn, however much any of them
 * asks for, and the work of one owner in the order in which it came.
 */
export function createSemaphore(settings: SemaphoreSettings) {
  const { atOnce, atOnceOfOne, mostWaiting, mostWaitingOfOne, patience, refusal } = settings;
  const isHeavy = settings.isHeavy ?? (() => false);
  /** Those who work or wait; whoever was let in goes to the end. */
  const owners = new Map<string, Owner>();
  let running = 0;
  let waiting = 0;

  function ownerOf(name: string): Owner {
    const owner = owners.get(name) ?? { name, running: 0, waiting: new Set() };
    owners.set(name, owner);
    return owner;
  }

  function mayBegin(owner: Owner): boolean {
    if (running >= atOnce || owner.running >= atOnceOfOne) return false;
    if (!isHeavy(owner.name)) return true;
    let heavy = 0;
    for (const other of owners.values()) if (isHeavy(other.name)) heavy += other.running;
    return heavy < Math.max(1, atOnce - 1);
  }

  function begin(owner: Owner): void {
    owner.running++;
    running++;
    toTheEnd(owner);
  }

  function toTheEnd(owner: Owner): void {
    owners.delete(owner.name);
    owners.set(owner.name, owner);
  }

  function acquire(owner: Owner): Promise<void> {
    return new Promise((resolve, reject) => {
      if (waiting >= mostWaiting || owner.waiting.size >= mostWaitingOfOne) {
        return reject(refusal('too many wait'));
      }
      const leave = () => {
        clearTimeout(timer);
        waiting--;
        owner.waiting.delete(enter);
      };
      const enter = () => {
        leave();
        begin(owner);
        resolve();
      };
      const giveUp = () => {
        if (settings.isExcused?.()) {
          timer = setTimeout(giveUp, patience);
          return;
        }
        leave();
        forget(owner);
        reject(refusal('waited too long'));
      };
      let timer = setTimeout(giveUp, patience);
      waiting++;
      owner.waiting.add(enter);
    });
  }

  function forget(owner: Owner): void {
    if (owner.running === 0 && owner.waiting.size === 0) owners.delete(owner.name);
  }

  function release(owner: Owner): void {
    owner.running--;
    running--;
    toTheEnd(owner);
    forget(owner);
    for (const next of owners.values()) {
      if (running >= atOnce || waiting === 0) return;
      const [enter] = next.waiting;
      if (enter && mayBegin(next)) enter();
    }
  }

  /** @throws `refusal` when too many wait, or one has waited too long; else what the work throws */
  async function use<T>(name: string, work: () => Promise<T>): Promise<T> {
    const owner = ownerOf(name);
    try {
      if (owner.waiting.size === 0 && mayBegin(owner)) begin(owner);
      else await acquire(owner);
    } catch (error) {
      forget(owner);
      throw error;
    }
    try {
      return await work();
    } finally {
      release(owner);
    }
  }

  return { use };
}

export type Semaphore = ReturnType<typeof createSemaphore>;

/**
 * Request batching: calls that come while one is under way share the next, so that a thousand at once are a few. The first
 * waits for those of the present turn of the event loop.
 *
 * @param callAll answers for each of what was asked, in its order
 * @param most calls in one at most
 * @returns asks; rejects as the call does that it would have been in, or that it waited behind
 */
export function together<Asked, Answer>(
  callAll: (asked: Asked[]) => Promise<Answer[]>,
  most: number,
): (asked: Asked) => Promise<Answer> {
  interface Call {
    asked: Asked;
    resolve(answer: Answer): void;
    reject(error: Error): void;
  }
  let waiting: Call[] = [];
  let isRunning = false;

  async function run(): Promise<void> {
    isRunning = true;
    await undefined;
    while (waiting.length > 0) {
      const taken = waiting.splice(0, most);
      try {
        const answers = await callAll(taken.map(({ asked }) => asked));
        for (const [index, { resolve }] of taken.entries()) resolve(answers[index]!);
      } catch (error) {
        // What waits behind it would wait as long again; it is refused with it.
        const refused = [...taken, ...waiting];
        waiting = [];
        for (const { reject } of refused) reject(error as Error);
      }
    }
    isRunning = false;
  }

  return (asked) =>
    new Promise((resolve, reject) => {
      waiting.push({ asked, resolve, reject });
      if (!isRunning) void run();
    });
}
