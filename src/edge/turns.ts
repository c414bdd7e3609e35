import { ApiError } from '../errors.ts';

export interface TurnSettings {
  /** How many work at a time. */
  atOnce: number;
  /** How many may wait; whoever comes behind them is refused at once. */
  mostWaiting: number;
  /** How long one waits, in ms. */
  patience: number;
}

/**
 * Lets requests in one after the other that share a few connections: whoever is in gets through, instead of all
 * getting through a step at a time and none in time.
 */
export function createTurns({ atOnce, mostWaiting, patience }: TurnSettings) {
  let busy = 0;
  /** In the order in which they came. */
  const waiting = new Set<() => void>();

  function untilTurn(): Promise<void> {
    return new Promise((resolve, reject) => {
      const refuse = () => reject(new ApiError('unavailable', undefined, { 'Retry-After': '1' }));
      if (waiting.size >= mostWaiting) return refuse();
      const timer = setTimeout(() => {
        waiting.delete(begin);
        refuse();
      }, patience);
      function begin(): void {
        clearTimeout(timer);
        resolve();
      }
      waiting.add(begin);
    });
  }

  function pass(): void {
    const [next] = waiting;
    if (next === undefined) {
      busy--;
      return;
    }
    waiting.delete(next);
    next();
  }

  /** @throws {ApiError} 503 when too many wait, or one has waited too long; else what the work throws */
  return async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (busy < atOnce) busy++;
    else await untilTurn();
    try {
      return await work();
    } finally {
      pass();
    }
  };
}

export type InTurn = ReturnType<typeof createTurns>;
