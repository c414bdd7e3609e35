import type { SourceRow } from '../../src/integrations/source.ts';

/** Characters of payloads in one chunk, unless one row has more: bounds what stands in a lane before a live request. */
const MAX_CHUNK_CHARACTERS = 1_048_576;

/** Hands out the rows of a source in chunks, in their order, and reads a batch ahead. */
export function createRowReader(batches: AsyncIterable<SourceRow[]>) {
  const iterator = batches[Symbol.asyncIterator]();
  let held: SourceRow[] = [];
  let place = 0;
  let ahead = ask();

  function ask(): Promise<IteratorResult<SourceRow[]>> {
    const asked = iterator.next();
    // Whoever asks for the next chunk gets the error.
    asked.catch(() => {});
    return asked;
  }

  /** @returns at most `size` rows; none at the end */
  async function next(size: number): Promise<SourceRow[]> {
    const rows: SourceRow[] = [];
    let characters = 0;
    while (rows.length < size) {
      if (place === held.length) {
        const { value, done } = await ahead;
        if (done) break;
        held = value;
        place = 0;
        ahead = ask();
        continue;
      }
      const row = held[place]!;
      characters += row.payload?.length ?? 0;
      if (rows.length > 0 && characters > MAX_CHUNK_CHARACTERS) break;
      rows.push(row);
      place++;
    }
    return rows;
  }

  return next;
}

export type RowReader = ReturnType<typeof createRowReader>;
