/**
 * Lets so many pieces of work run at a time; the others wait, first come, first served. What each of them holds
 * in memory is bounded by that.
 */
export function createTurns(most: number) {
  const waiting: (() => void)[] = [];
  let running = 0;

  return async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (running >= most) await new Promise<void>((resolve) => waiting.push(resolve));
    else running++;
    try {
      return await work();
    } finally {
      // Whoever is next takes the place over.
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
