import type { LogRow } from '../../src/store/stream-log.ts';
import type { LogPosition } from '../../src/streams/destination.ts';
import type { Part, ReadMessage, Source } from './source.ts';
import type { Yielding } from './yielding.ts';

/**
 * Milliseconds between two reads for a destination that has received everything, and the number of such reads
 * after which its lease is given back.
 */
export const IDLE_POLL_MS = 100;
export const MAX_IDLE_POLLS = 20;

/** How deliveries read the log. */
export interface LogReading {
  source: Source;
  /** Returns the horizon of the log: all transactions with ids up to it have ended. */
  horizon(): string;
  /** Delays the reads of a destination in favour of clients. */
  yielding: Yielding;
}

/** Maximum number of entries of a page. */
const MAX_ENTRIES = 500;

/** Position up to which everything is delivered. */
export type Cursor = LogPosition;

export interface Page {
  read: ReadMessage[];
  /** The cursor after all messages of the page were delivered. Entries without a message are skipped. */
  end: Cursor;
}

/**
 * Creates a reader for the entries after a cursor, one page at a time. Each row of the log is read once; the
 * entries of a row that do not fit into a page are kept for the next page.
 * @returns a function that returns the next page, or undefined if all entries below the horizon were read. It
 * calls `turn` with the time of the first row, and looks up the messages when `turn` resolves
 */
export function openReader(
  source: Source,
  workspaceId: string,
  start: Cursor,
): (horizon: string, turn?: (at: Date) => Promise<void>) => Promise<Page | undefined> {
  let cursor = start;
  let rows: LogRow[] = [];

  return async (horizon, turn) => {
    if (rows.length === 0) {
      rows = await source.rowsAfter(workspaceId, cursor, horizon);
      if (rows[0] && !isBegun(rows[0], cursor)) cursor = { ...cursor, place: 0 };
    }
    const [parts, left] = partsOf(rows, cursor, source.partEntries);
    const last = parts.at(-1);
    if (!last) return undefined;
    await turn?.(parts[0]!.row.at);
    const [begun, ...others] = await source.messagesOf(workspaceId, parts);
    const read = begun!.filter(({ index }) => index >= cursor.place).concat(...others);
    cursor = cursorAfter(last.row, last.end - 1);
    rows = left;
    return { read, end: cursor };
  };
}

/**
 * Returns the cursor after an entry of a row. In the middle of a row, its position identifies that row
 * exactly.
 */
export function cursorAfter({ id, ids }: LogRow, index: number): Cursor {
  return index + 1 === ids.length ? { position: id, place: 0 } : { position: idBefore(id), place: index + 1 };
}

/**
 * Returns whether the `place` of the cursor refers to this row. The row may have been trimmed. A cursor of an
 * earlier release has the position of the previous row and does not identify this one, so the row is
 * delivered again from its beginning.
 */
const isBegun = ({ id }: LogRow, { position, place: index }: Cursor) =>
  index === 0 || position === idBefore(id);

const idBefore = (id: string) => String(BigInt(id) - 1n);

/** Returns the parts of a page and the remaining rows. The first of these rows may be partly read. */
function partsOf(rows: LogRow[], { place: startIndex }: Cursor, partEntries: number): [Part[], LogRow[]] {
  const parts: Part[] = [];
  let entries = 0;
  let first = startIndex - (startIndex % partEntries);
  for (const [index, row] of rows.entries()) {
    for (; first < row.ids.length; first += partEntries) {
      const end = Math.min(first + partEntries, row.ids.length);
      if (entries > 0 && entries + end - first > MAX_ENTRIES) return [parts, rows.slice(index)];
      entries += end - first;
      parts.push({ row, first, end });
    }
    first = 0;
  }
  return [parts, []];
}
