/** Rows of a chunk; with it ends how long a live request can wait behind one. */
const LARGEST = 1000;
const SMALLEST = 50;
const FIRST = 100;

/** Milliseconds that the lanes may need for a chunk; a live request behind it waits as long. */
const TARGET = 200;

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
