/** The pause after a slow read is so many times as long as that took. */
const BACK_OFF = 4;

/**
 * Back-off: a pause follows each slow read. Where the queue is far away, reads without one would keep everything else
 * from it.
 *
 * @param slowMs milliseconds from which on something was slow
 */
export function createBackOff(slowMs: number) {
  /** By `performance.now()`. */
  let until = 0;

  function after(took: number): void {
    until = performance.now() + BACK_OFF * took;
  }

  return {
    isWaiting: () => performance.now() < until,
    after,
    /** The value, and a pause from then on if it came slowly; undefined when the promise is rejected. */
    async timed<Value>(promise: Promise<Value>): Promise<Value | undefined> {
      const begun = performance.now();
      const value = await promise.catch(() => undefined);
      const took = performance.now() - begun;
      if (took > slowMs) after(took);
      return value;
    },
  };
}
