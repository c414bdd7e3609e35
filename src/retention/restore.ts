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
import { alone, putVerified, type Retention, readArchived, requireLease, requireStore } from './files.ts';
import { type Attempts, createAttempts, keyOf, kinds, type Month, settle } from './plan.ts';

export interface Restored {
  files: number;
  /** Rows that are in the tables again. */
  restored: number;
  /** Rows that were there already. */
  present: number;
  /** Rows of users who were deleted: they stay out. */
  left_out: number;
}

/**
 * Brings a month of a workspace back from the archive, page by page; doing it again adds nothing. Sums and series are not
 * touched: they were kept.
 *
 * @param days for which no run lets the month go again
 * @returns undefined while somebody else is at the retention
 * @throws {Error} that names the files that could not be read; the others are back
 */
export function restoreMonth(
  given: Retention,
  { workspaceId, month, days }: { workspaceId: string; month: Month; days: number },
): Promise<Restored | undefined> {
  return alone(given, async (retention) => {
    const { pool, signal } = retention;
    const result: Restored = { files: 0, restored: 0, present: 0, left_out: 0 };
    const failed: string[] = [];
    for (const kind of kinds) {
      const files = (await filesOfMonth(pool, { workspaceId, month, kind })).filter(
        ({ state, object }) => object !== null && (state === 'removed' || state === 'restored'),
      );
      // First, so that no run takes rows that are back for ones that were never archived.
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

/** Brings the rows of a file back, and says of each page what has become of its rows. */
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

export interface Erased {
  /** Files that were looked through. */
  files: number;
  /** Of those, files that were written anew, or removed as nothing was left. */
  rewritten: number;
  /** Rows of deleted users that the archive had. */
  erased: number;
  /** Months, events and purchases apart, of which a file failed. */
  failed: number;
}

/** Days after the first delete, when it has to reach the archive. */
export const ERASE_AFTER_DAYS = 14;

/** What there is to be erased: all of some workspaces, and months of which a file has failed before. */
export interface DueErasures {
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
 * Erases deleted users from the archive: every file of the workspaces in question is read, and written anew without them.
 * A file that fails leaves the others alone, and is tried again by itself.
 *
 * @param workspaceId absent: those of which a user was deleted so many days ago
 * @returns undefined while somebody else is at the retention
 */
export function eraseDeleted(
  given: Retention,
  options: { workspaceId?: string | undefined; days?: number },
): Promise<Erased | undefined> {
  return alone(given, async (retention) => {
    const { pool } = retention;
    /** Rows that each file has lost, of those that were looked through. */
    const lost: number[] = [];
    const attempts = createAttempts(retention, 'erase');
    const due = await planErasures(retention, options);
    for (const id of due.workspaces) {
      // Before the first look: whoever is deleted later is told of again.
      const { instant } = await readClock(pool);
      const every = listFiles(pool, ['archiving', 'verified', 'removed', 'restored', 'replaced'], id);
      for await (const file of every) lost.push(...(await eraseOne({ retention, attempts }, file)));
      // A file that failed is remembered by itself.
      if (!attempts.isOver) await finishErasure(pool, id, instant);
    }
    const isTried = ({ workspaceId }: ArchivedMonth) => due.workspaces.includes(workspaceId);
    for (const month of due.months.filter((one) => !isTried(one)))
      for (const file of await filesOfMonth(pool, month))
        lost.push(...(await eraseOne({ retention, attempts }, file)));
    const isOver = (one: ArchivedMonth) => !attempts.isOver && !attempts.failed.has(keyOf(one));
    await settle(retention, 'erase', due.months.filter(isOver));
    return {
      files: lost.length,
      rewritten: lost.filter((rows) => rows > 0).length,
      erased: lost.reduce((sum, rows) => sum + rows, 0),
      failed: attempts.failed.size,
    };
  });
}

/** @returns rows that the file has lost; nothing of one that was not looked through to its end */
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

/** @returns rows that the file does not have any more */
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
    const found = await putVerified(retention, { object, kind }, kept());
    await requireLease(retention);
    await inTransaction(pool, async (tx) => {
      await verifyFile(tx, { ...successor, ...found, last: file.last }, file);
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
