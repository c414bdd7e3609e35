import { ObjectStoreError } from '../object-store/object-store.ts';
import type { ArchivedMonth } from '../store/archive-files.ts';
import { clearFailure, type RetentionTask, recordFailure } from '../store/retention-runs.ts';
import type { Retention } from './files.ts';
import { keyOf } from './plan.ts';

/** Failures in a row that are no matter of one file: then nothing else is asked of the archive in this run. */
const MOST_IN_ROW = 3;

/** What fails alone, and what has failed. */
export interface Attempts {
  /** By `keyOf`, the months that have failed in this run. */
  failed: Set<string>;
  /** The archive itself fails: what is left is for the next run. */
  isOver: boolean;
  /**
   * Does what concerns these months. A failure is told in the log, noted with its back-off, and leaves the rest alone.
   * @returns whether it went well
   * @throws what ends the run: it was told to stop, or is not alone any more
   */
  attempt(months: readonly ArchivedMonth[], work: () => Promise<void>): Promise<boolean>;
}

export function createAttempts({ pool, log, signal }: Retention, task: RetentionTask): Attempts {
  let inRow = 0;
  const attempts: Attempts = {
    failed: new Set(),
    isOver: false,
    async attempt(months, work) {
      try {
        await work();
        inRow = 0;
        return true;
      } catch (error) {
        signal?.throwIfAborted();
        const reason = error instanceof Error ? error.message : String(error);
        for (const { workspaceId, month, kind } of months) {
          log.error(
            { err: error, workspace_id: workspaceId, month, kind, task },
            'the retention failed with a month; the others go on',
          );
          const key = keyOf({ workspaceId, month, kind });
          if (attempts.failed.has(key)) continue;
          attempts.failed.add(key);
          await recordFailure(pool, { workspaceId, month, kind, task, reason });
        }
        const isOfArchive = error instanceof ObjectStoreError && error.reason !== 'missing';
        inRow = isOfArchive ? inRow + 1 : 0;
        if (inRow >= MOST_IN_ROW) attempts.isOver = true;
        return false;
      }
    },
  };
  return attempts;
}

/** Whatever was wrong with these months is over. */
export async function settle(
  { pool }: Retention,
  task: RetentionTask,
  months: readonly ArchivedMonth[],
): Promise<void> {
  for (const month of months) await clearFailure(pool, { ...month, task });
}
