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
  /** Maximum number of tasks that run at a time. */
  maxRunning: number;
  /** Maximum number of tasks of one owner that run at a time. */
  maxRunningPerOwner: number;
  /** Maximum number of waiting tasks. Further tasks are refused immediately. */
  maxWaiting: number;
  /** Maximum number of waiting tasks of one owner. */
  maxWaitingPerOwner: number;
  /** Maximum wait of a task, in milliseconds. */
  patience: number;
  /**
   * Returns whether the tasks of an owner take long. All heavy owners together leave one slot free for the
   * others.
   */
  isHeavy?(owner: string): boolean;
  /**
   * Returns whether a task that has reached its maximum wait may wait for another period instead of being
   * refused.
   */
  isExcused?(): boolean;
  /** Builds the error with which a task is refused. */
  refusal(reason: 'too many wait' | 'waited too long'): Error;
}

interface Owner {
  name: string;
  running: number;
  /** Callbacks that start the waiting tasks, oldest first. */
  waiting: Set<() => void>;
}

/**
 * Creates a fair semaphore that limits concurrent use of a scarce resource. Owners take turns, however many
 * tasks each of them has. Tasks of one owner start in the order in which they arrived.
 */
export function createSemaphore(settings: SemaphoreSettings) {
  const { maxRunning, maxRunningPerOwner, maxWaiting, maxWaitingPerOwner, patience, refusal } = settings;
  const isHeavy = settings.isHeavy ?? (() => false);
  /**
   * Owners with running or waiting tasks, in the order of their turns. An owner that starts a task moves to
   * the end.
   */
  const owners = new Map<string, Owner>();
  let running = 0;
  let waiting = 0;

  function ownerOf(name: string): Owner {
    const owner = owners.get(name) ?? { name, running: 0, waiting: new Set() };
    owners.set(name, owner);
    return owner;
  }

  function mayBegin(owner: Owner): boolean {
    if (running >= maxRunning || owner.running >= maxRunningPerOwner) return false;
    if (!isHeavy(owner.name)) return true;
    let heavy = 0;
    for (const other of owners.values()) if (isHeavy(other.name)) heavy += other.running;
    return heavy < Math.max(1, maxRunning - 1);
  }

  function begin(owner: Owner): void {
    owner.running++;
    running++;
    moveToEnd(owner);
  }

  function moveToEnd(owner: Owner): void {
    owners.delete(owner.name);
    owners.set(owner.name, owner);
  }

  function acquire(owner: Owner): Promise<void> {
    return new Promise((resolve, reject) => {
      if (waiting >= maxWaiting || owner.waiting.size >= maxWaitingPerOwner) {
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
    moveToEnd(owner);
    forget(owner);
    for (const next of owners.values()) {
      if (running >= maxRunning || waiting === 0) return;
      const [enter] = next.waiting;
      if (enter && mayBegin(next)) enter();
    }
  }

  /**
   * @throws `refusal` when too many tasks wait or this one waited too long; otherwise the error of the task
   */
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
