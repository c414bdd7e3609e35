import type { LogRow } from '../../src/store/stream-log.ts';
import type { LogPlace } from '../../src/streams/destination.ts';
import type { Part, Source, Told } from './source.ts';

/** Entries that are read at once. */
const ENTRIES = 500;

/** Behind which everything is delivered. */
export type Cursor = LogPlace;

export interface Page {
  read: Told[];
  /** The cursor when all of them are delivered: some entries have nothing to tell any more. */
  end: Cursor;
}

/**
 * Reads what is behind a cursor, a page at a time, and each row of the log once: what a page leaves of a row is kept for
 * the next.
 * @returns gives the next page; nothing when all that is decided was read. `turn` hears when its first row took effect, and
 * resolves when it is to be looked up
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
      rows = await source.rowsBehind(workspaceId, cursor, horizon);
      if (rows[0] && !isBegun(rows[0], cursor)) cursor = { ...cursor, place: 0 };
    }
    const [parts, left] = partsOf(rows, cursor, source.partEntries);
    const last = parts.at(-1);
    if (!last) return undefined;
    await turn?.(parts[0]!.row.at);
    const [begun, ...others] = await source.tell(workspaceId, parts);
    const read = begun!.filter(({ place }) => place >= cursor.place).concat(...others);
    cursor = cursorBehind(last.row, last.end - 1);
    rows = left;
    return { read, end: cursor };
  };
}

/** The cursor behind an entry of a row: within one, its position names that row and no other. */
export function cursorBehind({ id, ids }: LogRow, place: number): Cursor {
  return place + 1 === ids.length ? { position: id, place: 0 } : { position: idBefore(id), place: place + 1 };
}

/**
 * Whether the row is the one that the place of the cursor counts from. That one may have been trimmed; and a cursor of an
 * earlier release, behind the row before, does not name it: from there the row is delivered once more.
 */
const isBegun = ({ id }: LogRow, { position, place }: Cursor) => place === 0 || position === idBefore(id);

const idBefore = (id: string) => String(BigInt(id) - 1n);

/** Parts that make a page, and the rows that are left: the first of these may be begun. */
function partsOf(rows: LogRow[], { place }: Cursor, partEntries: number): [Part[], LogRow[]] {
  const parts: Part[] = [];
  let entries = 0;
  let first = place - (place % partEntries);
  for (const [index, row] of rows.entries()) {
    for (; first < row.ids.length; first += partEntries) {
      const end = Math.min(first + partEntries, row.ids.length);
      if (entries > 0 && entries + end - first > ENTRIES) return [parts, rows.slice(index)];
      entries += end - first;
      parts.push({ row, first, end });
    }
    first = 0;
  }
  return [parts, []];
}
