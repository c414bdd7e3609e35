import type { LogRow } from '../../src/store/stream-log.ts';
import type { Source, Told } from './source.ts';

/** Entries that are read at once. */
const ENTRIES = 500;

/** Behind which row, and how many entries of the next one, everything is delivered. */
export interface Cursor {
  position: string;
  place: number;
}

export interface Read extends Told {
  /** The cursor when it is delivered. */
  cursor: Cursor;
}

export interface Page {
  read: Read[];
  /** The cursor when all of them are: some entries have nothing to tell any more. */
  end: Cursor;
}

/**
 * Reads what is behind a cursor, a page at a time, and each row of the log once: what a page leaves of a row is kept for
 * the next.
 * @returns gives the next page; nothing when all that is decided was read
 */
export function openReader(
  source: Source,
  workspaceId: string,
  start: Cursor,
): (horizon: string) => Promise<Page | undefined> {
  let cursor = start;
  let rows: LogRow[] = [];

  return async (horizon) => {
    if (rows.length === 0) rows = await source.rowsBehind(workspaceId, cursor, horizon);
    const [parts, left] = partsOf(rows, cursor, source.partEntries);
    if (parts.length === 0) return undefined;
    const told = await source.tell(workspaceId, parts);
    const read: Read[] = [];
    for (const [index, { row, first, last }] of parts.entries()) {
      for (const one of told[index]!)
        if (one.place >= cursor.place) read.push({ ...one, cursor: behind(row, one.place, cursor.position) });
      cursor = behind(row, Math.min(first + source.partEntries, last) - 1, cursor.position);
    }
    rows = left;
    return { read, end: cursor };
  };
}

/** A stretch of a row's entries: those from `first` on, of `last` that the row has. */
export interface Part {
  row: LogRow;
  first: number;
  last: number;
}

/** Parts that make a page, and the rows that are left: the first of these may be begun. */
function partsOf(rows: LogRow[], { place }: Cursor, partEntries: number): [Part[], LogRow[]] {
  const parts: Part[] = [];
  let entries = 0;
  let first = place - (place % partEntries);
  for (const [index, row] of rows.entries()) {
    const last = row.ids.length;
    for (; first < last; first += partEntries) {
      const more = Math.min(partEntries, last - first);
      if (entries > 0 && entries + more > ENTRIES) return [parts, rows.slice(index)];
      entries += more;
      parts.push({ row, first, last });
    }
    first = 0;
  }
  return [parts, []];
}

/** The cursor behind an entry of a row that comes after `position`. */
function behind(row: LogRow, place: number, position: string): Cursor {
  return place + 1 === row.ids.length ? { position: row.id, place: 0 } : { position, place: place + 1 };
}
