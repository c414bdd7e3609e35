import { newId } from '../platform/ids.ts';
import {
  type ArchivedMonth,
  type ArchiveFile,
  filesOfMonth,
  insertFile,
  listFiles,
  removeFile,
  setFileState,
  verifyFile,
} from '../store/archive-files.ts';
import {
  type ActivityRow,
  dueErasures,
  findDeleted,
  finishErasure,
  insertOwned,
} from '../store/retention.ts';
import { listFailures, type RetentionFailure, readClock } from '../store/retention-runs.ts';
import { inTransaction } from '../store/transactions.ts';
import { discardUnfinished, objectOf, PAGE } from './archive.ts';
import {
  putVerified,
  type Retention,
  readArchived,
  requireLease,
  requireStore,
  withRetentionLock,
} from './files.ts';
import { type Attempts, clearFailures, createAttempts, keyOf, kinds, type Month } from './plan.ts';

interface Restored {
  files: number;
  /** Rows that were inserted into the tables. */
  restored: number;
  /** Rows that were already in the tables. */
  present: number;
  /** Rows of deleted users, which are not restored. */
  left_out: number;
}

/**
 * Restores a month of a workspace from the archive, page by page. Repeating it inserts nothing. Summaries and
 * series are not changed, because they were kept.
 *
 * @param days days during which no run removes the month again
 * @returns undefined if another process holds the retention lock
 * @throws {Error} with the names of the files that could not be read; the other files are restored
 */
export function restoreMonth(
  unlocked: Retention,
  { workspaceId, month, days }: { workspaceId: string; month: Month; days: number },
): Promise<Restored | undefined> {
  return withRetentionLock(unlocked, async (retention) => {
    const { pool, signal } = retention;
    const result: Restored = { files: 0, restored: 0, present: 0, left_out: 0 };
    const failed: string[] = [];
    for (const kind of kinds) {
      const files = (await filesOfMonth(pool, { workspaceId, month, kind })).filter(
        ({ state, object }) => object !== null && (state === 'removed' || state === 'restored'),
      );
      // Set first, so that no run mistakes restored rows for rows that were never archived.
      for (const file of files) await setFileState(pool, file, { state: 'restored', days });
      for (const file of files) {
        let isUntouched = true;
        try {
          for await (const page of restoreFile(retention, file)) {
            isUntouched = false;
            result.restored += page.restored;
            result.present += page.present;
            result.left_out += page.left_out;
          }
          result.files += 1;
        } catch (error) {
          signal?.throwIfAborted();
          failed.push((error as Error).message);
          if (isUntouched && file.state === 'removed') await setFileState(pool, file, { state: 'removed' });
        }
      }
    }
    if (failed.length > 0)
      throw new Error(
        `${failed.length} of ${result.files + failed.length} files could not be restored; ${result.restored} rows of the other files were restored: ${failed.join('; ')}`,
      );
    return result;
  });
}

/** Restores the rows of a file and yields the result of each page. */
async function* restoreFile(
  retention: Retention,
  file: ArchiveFile,
): AsyncGenerator<Omit<Restored, 'files'>> {
  const { workspaceId, kind } = file;
  for await (const rows of readArchived(retention, file)) {
    for (let at = 0; at < rows.length; at += PAGE) {
      await requireLease(retention);
      const page = rows.slice(at, at + PAGE);
      const { inserted, ofDeleted } = await inTransaction(retention.pool, (tx) =>
        insertOwned(tx, kind, { workspaceId, rows: page }),
      );
      yield { restored: inserted, present: page.length - inserted - ofDeleted, left_out: ofDeleted };
    }
  }
}

interface Erased {
  /** Files that were read completely. */
  files: number;
  /** Number of those files that were rewritten, or removed because no rows were left. */
  rewritten: number;
  /** Rows of deleted users that were erased from the archive. */
  erased: number;
  /** Failed months, counting events and purchases separately. */
  failed: number;
}

/** Days after the first delete of a workspace by which it is applied to the archive. */
export const ERASE_AFTER_DAYS = 14;

/** Work of an erasure: whole workspaces, and months with a file that failed before. */
interface DueErasures {
  workspaces: string[];
  months: RetentionFailure[];
}

export async function planErasures(
  { pool, heedsBackOff }: Retention,
  { workspaceId, days = ERASE_AFTER_DAYS }: { workspaceId?: string | undefined; days?: number },
): Promise<DueErasures> {
  const workspaces = workspaceId === undefined ? await dueErasures(pool, days) : [workspaceId];
  const months: RetentionFailure[] = [];
  for await (const failure of listFailures(pool)) {
    const isOne = workspaceId === undefined || failure.workspaceId === workspaceId;
    if (failure.task === 'erase' && isOne && (failure.due || !heedsBackOff)) months.push(failure);
  }
  return { workspaces, months };
}

/**
 * Erases deleted users from the archive: reads every file of the workspaces and rewrites files that have rows
 * of deleted users. A file that fails does not affect the others and is retried individually.
 *
 * @param workspaceId absent: workspaces whose oldest pending delete is at least `days` old
 * @returns undefined if another process holds the retention lock
 */
export function eraseDeleted(
  unlocked: Retention,
  options: { workspaceId?: string | undefined; days?: number },
): Promise<Erased | undefined> {
  return withRetentionLock(unlocked, async (retention) => {
    const { pool } = retention;
    /** Number of erased rows for each file that was read completely. */
    const lost: number[] = [];
    const attempts = createAttempts(retention, 'erase');
    const due = await planErasures(retention, options);
    for (const id of due.workspaces) {
      // Read before the first file, so that later deletes are pending again.
      const { instant } = await readClock(pool);
      const every = listFiles(pool, ['archiving', 'verified', 'removed', 'restored', 'replaced'], id);
      for await (const file of every) lost.push(...(await eraseOne({ retention, attempts }, file)));
      // Files that failed are recorded individually.
      if (!attempts.isOver) await finishErasure(pool, id, instant);
    }
    const isCovered = ({ workspaceId }: ArchivedMonth) => due.workspaces.includes(workspaceId);
    for (const month of due.months.filter((one) => !isCovered(one)))
      for (const file of await filesOfMonth(pool, month))
        lost.push(...(await eraseOne({ retention, attempts }, file)));
    const isOver = (one: ArchivedMonth) => !attempts.isOver && !attempts.failed.has(keyOf(one));
    await clearFailures(retention, 'erase', due.months.filter(isOver));
    return {
      files: lost.length,
      rewritten: lost.filter((rows) => rows > 0).length,
      erased: lost.reduce((sum, rows) => sum + rows, 0),
      failed: attempts.failed.size,
    };
  });
}

/**
 * Erases deleted users from one file and records a failure.
 *
 * @returns the number of erased rows; empty if the file was not read completely
 */
async function eraseOne(
  { retention, attempts }: { retention: Retention; attempts: Attempts },
  file: ArchiveFile,
): Promise<number[]> {
  const lost: number[] = [];
  if (file.object === null || attempts.isOver) return lost;
  await attempts.attempt([file], async () => {
    if (file.state === 'archiving' || file.state === 'replaced') return discardUnfinished(retention, file);
    lost.push(await eraseFrom(retention, file));
  });
  return lost;
}

/** Rewrites or removes one file without the rows of deleted users. @returns the number of erased rows */
async function eraseFrom(retention: Retention, file: ArchiveFile): Promise<number> {
  const { pool, log } = retention;
  const deleted = new Set<string>();
  let erased = 0;
  for await (const rows of readArchived(retention, file)) {
    const owners = [...new Set(rows.map((row) => row.profileId))];
    for (const id of await findDeleted(pool, file.workspaceId, owners)) deleted.add(id);
    erased += rows.filter((row) => deleted.has(row.profileId)).length;
  }
  if (erased === 0) return 0;

  async function* kept(): AsyncGenerator<ActivityRow> {
    for await (const rows of readArchived(retention, file))
      yield* rows.filter((row) => !deleted.has(row.profileId));
  }
  if (erased < file.rows) {
    const { workspaceId, month, kind } = file;
    const successor = { workspaceId, month, kind, id: newId() };
    const object = objectOf(file, successor.id);
    await insertFile(pool, { ...successor, state: 'archiving', object });
    const written = await putVerified(retention, { object, kind }, kept());
    await requireLease(retention);
    await inTransaction(pool, async (tx) => {
      await verifyFile(tx, { ...successor, ...written, last: file.last }, file);
      await setFileState(tx, file, { state: 'replaced' });
    });
  } else {
    await requireLease(retention);
    await setFileState(pool, file, { state: 'replaced' });
  }
  await requireStore(retention.store).remove(file.object!);
  await removeFile(pool, file);
  log.info({ object: file.object, rows: erased }, 'deleted users were erased from a file of the archive');
  return erased;
}
