/**
 * Back-off after what was slow, not after what was in vain: a pause of so many times what it took, and none behind what was
 * quick. `backOff` of src/platform/poll.ts is the other one, whose pauses grow with each try. Nobody waits here: whoever
 * would read asks, and reads later. Where the queue is far away, reads without a pause would keep everything else from it.
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

/** The pause is so many times as long as what was slow. */
const BACK_OFF = 4;
