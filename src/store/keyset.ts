/**
 * A page of a list whose newest row comes first, by ids that are UUIDv7: it begins behind a row, or ends before one.
 * Pages stay whole while rows are added, since a row is never counted.
 */
export interface KeysetPage {
  /** `older`: the rows behind `from`; `newer`: those right before it. */
  direction: 'older' | 'newer';
  /** An id; absent: from the newest row on. */
  from?: string;
  /** Most rows of the page. */
  size: number;
}

/** What a page's statement puts into the text, by direction. */
export const keyset = {
  older: { compare: '<', beyond: '>=', order: 'desc' },
  newer: { compare: '>', beyond: '<=', order: 'asc' },
} as const;

/** Every UUID lies before it. */
export const NEWEST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** What a page's statement says of each row beside it. */
interface Placed {
  id: string;
  /** Whether there are rows on the other side of `from`. */
  beyond: boolean;
  /** Whether the whole list is longer than a page. */
  paged: boolean;
}

export interface Listed<Row> {
  /** The newest first. */
  rows: Row[];
  /** Whether there are rows before the first one here. */
  newer: boolean;
  /** Whether there are rows behind the last one here. */
  older: boolean;
}

/** The page of rows that were fetched with one more than its size. */
export function listed<Row extends Placed>(fetched: Row[], { direction, size }: KeysetPage): Listed<Row> {
  const rows = fetched.slice(0, size);
  const further = fetched.length > size;
  const [{ beyond, paged } = { beyond: false, paged: false }] = fetched;
  if (direction === 'newer') rows.reverse();
  const [newer, older] = direction === 'newer' ? [further, beyond] : [beyond, further];
  return { rows, newer: paged && newer, older: paged && older };
}
