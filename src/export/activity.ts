import type { ParquetColumn } from '../object-store/parquet.ts';
import { floorOf } from '../platform/ids.ts';
import { type ExportedActivity, readActivity } from '../store/export-activity.ts';
import { estimateRows } from '../store/row-estimates.ts';
import { FIRST_ID } from '../store/segments.ts';
import { nameOf, namingColumns, ownersOf } from './owners.ts';
import type { ExportedRow, Page, Reading, Source } from './source.ts';

/** Rows that are read at once: any of them may have 50 KB of properties. */
const READ = 500;
const ROWS_OF_FILE = 100_000;
/** What is accepted has happened by then, by the clock of the process that took it. */
const CLOCKS_APART_MS = 3_600_000;

const columns: Record<'events' | 'purchases', ParquetColumn[]> = {
  events: [
    { name: 'name', type: 'text' },
    { name: 'time', type: 'timestamp' },
  ],
  purchases: [
    { name: 'product_id', type: 'text' },
    { name: 'currency', type: 'text' },
    { name: 'price', type: 'double' },
    { name: 'quantity', type: 'bigint' },
    { name: 'time', type: 'timestamp' },
  ],
};

/** Events or purchases as `/users/track` takes them, by the ids of their users, and of one user as they were accepted. */
export function activitySource(kind: 'events' | 'purchases', reading: Reading): Source {
  const { wanted, connection, serviceIdField, leaving, lookedAt: limit = READ } = reading;
  const { workspace, from, until } = wanted;
  const { since, sinceMonth } = acceptedFrom(from);

  async function* pages(begin: string): AsyncGenerator<Page, void> {
    for (let [profileId, id] = begin.split('/') as [string, string]; ; ) {
      leaving.throwIfAborted();
      const after = { profileId, id };
      const part = { workspaceId: workspace.id, after, since, sinceMonth, from, until, limit };
      const read = await readActivity(connection, kind, part);
      const last = read.at(-1);
      if (!last) return;
      const wantedRows = read.flatMap(({ profileId, activity }) =>
        activity ? [{ profileId, activity }] : [],
      );
      const owners = await ownersOf(
        reading,
        wantedRows.map((row) => row.profileId),
      );
      const rows = wantedRows.flatMap((row) => {
        const owner = owners.get(row.profileId);
        return owner?.isMeant ? [{ ...nameOf(owner, serviceIdField), ...given(row.activity) }] : [];
      });
      [profileId, id] = [last.profileId, last.id];
      yield { rows, looked: read.length, cut: 0, last: `${profileId}/${id}` };
      if (read.length < limit) return;
    }
  }

  return {
    ...{ first: `${FIRST_ID}/${FIRST_ID}`, most: limit, rowsOfFile: ROWS_OF_FILE, pages },
    columns: [
      ...namingColumns(serviceIdField),
      ...columns[kind],
      { name: 'app_id', type: 'text' },
      { name: 'properties', type: 'json' },
    ],
    estimate: (after) =>
      estimateRows(connection, workspace.id, { table: kind, after: after.split('/')[0]!, since }),
  };
}

/** The first id that what happened from a time on can have, and the first of that month. */
function acceptedFrom(from: string | null): { since: string; sinceMonth: string } {
  if (from === null) return { since: FIRST_ID, sinceMonth: FIRST_ID };
  const date = new Date(Math.max(0, Date.parse(from) - CLOCKS_APART_MS));
  const month = Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
  return { since: floorOf(date.getTime()), sinceMonth: floorOf(month) };
}

/** Without what is not there. */
const given = (activity: ExportedActivity): ExportedRow =>
  Object.fromEntries(Object.entries(activity).filter(([, value]) => value !== null));
