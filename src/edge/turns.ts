import { RendererBusy } from '../preferences/renderer.ts';

interface Waiting {
  begin(): void;
}

/**
 * Lets so much work be done at once; what comes beyond that waits for its turn, a bounded time in a bounded queue.
 *
 * @param atOnce works in hand
 * @param most works that may wait
 * @param patience milliseconds that one may wait
 */
export function createTurns({ atOnce, most, patience }: { atOnce: number; most: number; patience: number }) {
  const waiting = new Set<Waiting>();
  let inHand = 0;

  /** @throws {RendererBusy} when its turn did not come, at once when too many wait; and what the work throws */
  async function take<T>(work: () => Promise<T>): Promise<T> {
    if (inHand < atOnce) inHand++;
    else await turn();
    try {
      return await work();
    } finally {
      // Whoever is next takes this place over, so that nobody overtakes those who wait.
      const [next] = waiting;
      if (next) next.begin();
      else inHand--;
    }
  }

  function turn(): Promise<void> {
    if (waiting.size >= most) return Promise.reject(new RendererBusy('too many pages wait'));
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        waiting.delete(one);
      };
      const timer = setTimeout(() => {
        end();
        reject(new RendererBusy('too many pages at once'));
      }, patience);
      const one: Waiting = {
        begin() {
          end();
          resolve();
        },
      };
      waiting.add(one);
    });
  }

  return { take };
}
