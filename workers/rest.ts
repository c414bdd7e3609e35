/** Times as long as something took that was slow, until it is done again. */
const REST = 4;

/**
 * Keeps apart what is slow: where the queue is far away, what is read from it would keep everything else from it.
 *
 * @param slowMs milliseconds from which on something was slow
 */
export function createRest(slowMs: number) {
  /** By `performance.now()`. */
  let until = 0;

  function after(took: number): void {
    until = performance.now() + REST * took;
  }

  return {
    isResting: () => performance.now() < until,
    after,
    /** What the promise says, after which follows a rest if it was slow; undefined when it is rejected. */
    async timed<Value>(promise: Promise<Value>): Promise<Value | undefined> {
      const begun = performance.now();
      const value = await promise.catch(() => undefined);
      const took = performance.now() - begun;
      if (took > slowMs) after(took);
      return value;
    },
  };
}
