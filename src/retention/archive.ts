import { newId } from '../platform/ids.ts';
import {
  type ArchivedMonth,
  type ArchiveFile,
  filesOfMonth,
  insertFile,
  removeFile,
  setFileState,
  verifyFile,
} from '../store/archive-files.ts';
import { type ActivityRow, deleteRows, findNextId, readStretch } from '../store/retention.ts';
import {
  CHARACTERS_OF_FILE,
  putVerified,
  type Retention,
  ROWS_OF_FILE,
  readArchived,
  requireLease,
  requireStore,
} from './files.ts';
import { idsOf } from './months.ts';

/** Rows of one statement. */
export const PAGE = 500;

export const objectOf = ({ workspaceId, month, kind }: ArchivedMonth, id: string) =>
  `${workspaceId}/${month}/${kind}-${id}.parquet`;

/** Whose rows are in the table still, although they are in the archive. */
export const isPending = ({ state, held }: ArchiveFile) =>
  state === 'verified' || (state === 'restored' && !held);

/** Removes what an interrupted run has left: files that were not verified, and those whose place another has taken. */
export async function discardUnfinished(retention: Retention, month: ArchivedMonth): Promise<void> {
  for (const file of await filesOfMonth(retention.pool, month)) {
    if (file.state !== 'archiving' && file.state !== 'replaced') continue;
    await requireLease(retention);
    await requireStore(retention.store).remove(file.object!);
    await removeFile(retention.pool, file);
  }
}

/**
 * Archives the rows of a month that no verified file has, as files that are read back each. What is behind the last of
 * them is new to the archive; what came late before it stays in the table for the next run.
 * @returns rows
 */
export async function archiveMonth(retention: Retention, month: ArchivedMonth): Promise<number> {
  const { pool } = retention;
  await discardUnfinished(retention, month);
  const pending = (await filesOfMonth(pool, month)).filter(isPending);
  const { workspaceId, kind } = month;
  let { after, before } = idsOf(month.month);
  for (const { greatest } of pending) if (greatest !== null && greatest > after) after = greatest;
  let archived = 0;
  while ((await findNextId(pool, kind, { workspaceId, after, before })) !== undefined) {
    retention.signal?.throwIfAborted();
    const file = await archiveOne(retention, month, { after, before });
    if (file.greatest === null) break;
    archived += file.rows;
    after = file.greatest;
  }
  return archived;
}

/** The next file of a month. Its row is there before its object is, so that none is ever forgotten. */
async function archiveOne(
  retention: Retention,
  month: ArchivedMonth,
  bounds: { after: string; before: string },
): Promise<{ rows: number; greatest: string | null }> {
  const { pool } = retention;
  const file = { ...month, id: newId() };
  const object = objectOf(month, file.id);
  await insertFile(pool, { ...file, state: 'archiving', object });
  const found = await putVerified(retention, { object, kind: month.kind }, rowsOf(retention, month, bounds));
  await verifyFile(pool, { ...file, ...found });
  retention.log.info({ ...month, object, rows: found.rows, bytes: found.bytes }, 'a file was archived');
  return found;
}

/** By pages, until the file is full. Rows never change, so that it takes no snapshot of them all. */
async function* rowsOf(
  { pool, rowsOfFile = ROWS_OF_FILE, signal }: Retention,
  { workspaceId, kind }: ArchivedMonth,
  { after, before }: { after: string; before: string },
): AsyncGenerator<ActivityRow> {
  let [rows, characters, last] = [0, 0, after];
  while (rows < rowsOfFile && characters < CHARACTERS_OF_FILE) {
    signal?.throwIfAborted();
    const limit = Math.min(PAGE, rowsOfFile - rows);
    const page = await readStretch(pool, { kind }, { workspaceId, after: last, before, limit });
    for (const row of page) {
      for (const value of Object.values(row)) if (typeof value === 'string') characters += value.length;
      yield row;
    }
    rows += page.length;
    if (page.length < limit) return;
    last = page.at(-1)!.id;
  }
}

/**
 * Deletes the rows of a month that are in its files, by their ids: what came late or is in no file stays.
 * @param from a partition that was detached; absent: the table
 * @returns rows
 */
export async function removeArchived(
  retention: Retention,
  month: ArchivedMonth,
  from: string = month.kind,
): Promise<number> {
  const { pool } = retention;
  let removed = 0;
  for (const file of (await filesOfMonth(pool, month)).filter(isPending)) {
    for await (const rows of readArchived(retention, file)) {
      for (let at = 0; at < rows.length; at += PAGE) {
        await requireLease(retention);
        const ids = rows.slice(at, at + PAGE).map(({ id }) => id);
        removed += await deleteRows(pool, from, { workspaceId: month.workspaceId, ids });
      }
    }
    await requireLease(retention);
    await setFileState(pool, file, { state: 'removed' });
  }
  return removed;
}

/** Deletes the rows of a month for good, and notes that it did. @returns rows */
export async function removeUnarchived(retention: Retention, month: ArchivedMonth): Promise<number> {
  const { pool } = retention;
  const { workspaceId, kind } = month;
  const bounds = idsOf(month.month);
  let removed = 0;
  // Noted first: counts of the series are not counted anew from what is left.
  if (!(await filesOfMonth(pool, month)).some(({ object }) => object === null))
    await insertFile(pool, { ...month, id: newId(), state: 'removed', object: null });
  for (;;) {
    await requireLease(retention);
    const page = await readStretch(pool, { kind }, { workspaceId, ...bounds, limit: PAGE });
    if (page.length === 0) return removed;
    removed += await deleteRows(pool, kind, { workspaceId, ids: page.map((row) => row.id) });
  }
}
