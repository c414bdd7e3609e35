/**
 * Splits rows that were fetched with a limit of `limit + 1` into a page and the cursor of the next page.
 * @returns `next`: cursor of the last row of the page; null on the last page
 */
export function takePage<Row, Cursor>(
  fetched: readonly Row[],
  limit: number,
  cursorOf: (last: Row) => Cursor,
): { rows: Row[]; next: Cursor | null } {
  const rows = fetched.slice(0, limit);
  return { rows, next: fetched.length > limit ? cursorOf(rows.at(-1)!) : null };
}
