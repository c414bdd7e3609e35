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
import type { Pool } from '../store/database.ts';
import { partitionWith } from '../store/partitions.ts';
import {
  type ActivityRow,
  BEGINNING,
  deleteRows,
  type RowPosition,
  type RowsOf,
  readRows,
} from '../store/retention.ts';
import {
  CHARACTERS_OF_FILE,
  putVerified,
  type Retention,
  ROWS_OF_FILE,
  readArchived,
  requireLease,
  requireStore,
} from './files.ts';
import { aboutMonth, idsOf } from './plan.ts';

/** Rows per statement. */
export const PAGE = 500;

export const objectOf = ({ workspaceId, month, kind }: ArchivedMonth, id: string) =>
  `${workspaceId}/${month}/${kind}-${id}.parquet`;

/** Returns whether rows of the file are still in the table, although they are archived. */
export const isPending = ({ state, held }: ArchiveFile) =>
  state === 'verified' || (state === 'restored' && !held);

/** Removes the files of an interrupted run: files that were not verified, and files that were replaced. */
export async function discardUnfinished(retention: Retention, month: ArchivedMonth): Promise<void> {
  for (const file of await filesOfMonth(retention.pool, month)) {
    if (file.state !== 'archiving' && file.state !== 'replaced') continue;
    await requireLease(retention);
    await requireStore(retention.store).remove(file.object!);
    await removeFile(retention.pool, file);
  }
}

/**
 * Yields pages of rows of a partition after a position, in key order. Also used while the rows are deleted:
 * continuing after the last page avoids walking past deleted rows each time.
 */
export async function* pagesOf(
  pool: Pick<Pool, 'query'>,
  of: RowsOf,
  start: RowPosition = BEGINNING,
): AsyncGenerator<ActivityRow[]> {
  for (let position = start; ; ) {
    const page = await readRows(pool, of, { behind: position, limit: PAGE });
    if (page.length > 0) yield page;
    if (page.length < PAGE) return;
    position = positionOf(page.at(-1)!);
  }
}

const positionOf = ({ profileId, id }: ActivityRow): RowPosition => ({ profileId, id });

const isAfter = (one: RowPosition, other: RowPosition) =>
  one.profileId === other.profileId ? one.id > other.id : one.profileId > other.profileId;

/**
 * Returns the table that has the rows of a month: its partition, or the default one with rows of other
 * months.
 */
const rowsOf = async (pool: Pool, { workspaceId, kind, month }: ArchivedMonth): Promise<RowsOf> => ({
  ...{ workspaceId, kind, from: await partitionWith(pool, { kind, month }) },
});

/** Yields the rows of a month that are in no pending file. Rows never change, so no snapshot is needed. */
async function* unarchived(retention: Retention, month: ArchivedMonth): AsyncGenerator<ActivityRow> {
  const { pool, signal } = retention;
  const pending = (await filesOfMonth(pool, month)).filter(isPending);
  let { after, before } = idsOf(month.month);
  let start = BEGINNING;
  for (const { last, greatest } of pending) {
    if (last !== null && isAfter(last, start)) start = last;
    // An earlier release wrote the file in id order: rows after the greatest id are not archived yet.
    if (last === null && greatest !== null && greatest > after) after = greatest;
  }
  for await (const page of pagesOf(pool, await rowsOf(pool, month), start)) {
    signal?.throwIfAborted();
    for (const row of page) if (row.id > after && row.id < before) yield row;
  }
}

/**
 * Archives the rows of a month that no verified file has. Each file is read back. Rows after the last file
 * are new to the archive; late rows before it stay in the table until the next run.
 *
 * @returns the number of archived rows
 */
export async function archiveMonth(retention: Retention, month: ArchivedMonth): Promise<number> {
  const { pool, rowsOfFile = ROWS_OF_FILE, signal, log } = retention;
  await discardUnfinished(retention, month);
  const rows = unarchived(retention, month);
  let [archived, last] = [0, BEGINNING];
  let next = await rows.next();
  async function* fillFile(): AsyncGenerator<ActivityRow> {
    let [count, characters] = [0, 0];
    while (!next.done && count < rowsOfFile && characters < CHARACTERS_OF_FILE) {
      count += 1;
      for (const value of Object.values(next.value))
        if (typeof value === 'string') characters += value.length;
      last = positionOf(next.value);
      yield next.value;
      next = await rows.next();
    }
  }
  while (!next.done) {
    signal?.throwIfAborted();
    const file = { ...month, id: newId() };
    const object = objectOf(month, file.id);
    // The row is inserted before the object is written, so that no object is left without a row.
    await insertFile(pool, { ...file, state: 'archiving', object });
    const written = await putVerified(retention, { object, kind: month.kind }, fillFile());
    await verifyFile(pool, { ...file, ...written, last });
    log.info(
      { ...aboutMonth(month), object, rows: written.rows, bytes: written.bytes },
      'a file was archived',
    );
    archived += written.rows;
  }
  return archived;
}

/**
 * Deletes the rows of a month that are in its files, by their ids. Late rows, and other rows that are not in
 * a file, stay.
 *
 * @param from name of a detached partition; absent: the table
 * @returns the number of deleted rows
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
        const page = rows.slice(at, at + PAGE);
        removed += await deleteRows(pool, from, { workspaceId: month.workspaceId, rows: page });
      }
    }
    await requireLease(retention);
    await setFileState(pool, file, { state: 'removed' });
  }
  return removed;
}

/**
 * Deletes the rows of a month permanently, without an archive, and records it.
 *
 * @returns the number of deleted rows
 */
export async function removeUnarchived(retention: Retention, month: ArchivedMonth): Promise<number> {
  const { pool } = retention;
  const { after, before } = idsOf(month.month);
  let removed = 0;
  // Recorded first, so that the counts of series are not recalculated from the remaining rows.
  if (!(await filesOfMonth(pool, month)).some(({ object }) => object === null))
    await insertFile(pool, { ...month, id: newId(), state: 'removed', object: null });
  const of = await rowsOf(pool, month);
  for await (const page of pagesOf(pool, of)) {
    await requireLease(retention);
    const rows = page.filter(({ id }) => id > after && id < before);
    if (rows.length > 0) removed += await deleteRows(pool, of.from, { workspaceId: of.workspaceId, rows });
  }
  return removed;
}
