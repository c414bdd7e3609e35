import type { ChainableCommander } from 'ioredis';

/** How many times envelopes were added, in Redis: it only grows there, and a smaller one shows that Redis went back in time. */
export const ADDITIONS = '{penstock}:additions';

/** What a producer knows of the count, from the answers to its own adds. */
export interface Additions {
  /** The highest count that was answered; 0: none yet. */
  highest(): number;
  /** Whether a count was answered that had been reached before. */
  fell(): boolean;
  /** Begins anew, when the count is known to have been lost. */
  reset(): void;
  /** Called when a count falls. */
  onFall(listener: () => void): void;
}

/** The part of BullMQ's Redis backend that puts one envelope into a transaction. */
interface FlowBackend {
  addJobToTransaction(multi: ChainableCommander, ...given: unknown[]): Promise<unknown>;
}

/**
 * Counts what a backend of BullMQ adds in the very transaction that adds it, so that both are on disk or neither: one
 * command more for a flush.
 */
export function countAdditions(backend: unknown): Additions {
  const flow = backend as FlowBackend;
  const counted = new WeakSet<ChainableCommander>();
  let highest = 0;
  let fell = false;
  let listener = () => {};

  function note(count: number): void {
    if (count > highest) highest = count;
    else {
      fell = true;
      listener();
    }
  }

  if (typeof flow.addJobToTransaction === 'function') {
    const add = flow.addJobToTransaction.bind(flow);
    flow.addJobToTransaction = (multi, ...given) => {
      if (!counted.has(multi)) {
        counted.add(multi);
        const exec = multi.exec.bind(multi);
        multi.exec = async () => {
          multi.incr(ADDITIONS);
          const answers = await exec();
          const [error, count] = answers?.pop() ?? [];
          if (!error && typeof count === 'number') note(count);
          return answers;
        };
      }
      return add(multi, ...given);
    };
  }

  return {
    highest: () => highest,
    fell: () => fell,
    reset() {
      highest = 0;
      fell = false;
    },
    onFall(given) {
      listener = given;
    },
  };
}
