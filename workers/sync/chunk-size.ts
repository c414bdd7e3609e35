/** Rows of a chunk; with it ends how long a live request can wait behind one. */
const LARGEST = 1000;
const SMALLEST = 50;
const FIRST = 100;

/**
 * Milliseconds that a chunk may need from its hand-over to its effect. A live request behind it waits less than that:
 * half of the second that a sync may cost one, since the next chunk is known to be slow only when it was.
 */
const TARGET = 500;

/** Finds how many rows the lanes take at a time without making others wait. */
export function createChunkSize() {
  let size = FIRST;
  return {
    now: () => size,
    /** @param milliseconds that a chunk of `rows` took, waiting for its turn included */
    learn(rows: number, milliseconds: number): void {
      if (milliseconds > TARGET) size = Math.max(SMALLEST, Math.floor(Math.min(rows, size) / 2));
      else if (milliseconds < TARGET / 2 && rows >= size) size = Math.min(LARGEST, size * 2);
    },
  };
}
