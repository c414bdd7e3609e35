import { newId } from '../platform/ids.ts';
import { type ArchivedMonth, type ArchiveFile, filesOfMonth, insertFile } from '../store/archive-files.ts';
import {
  countDetached,
  detachPartition,
  dropDetached,
  listPartitions,
  ownersIn,
  type Partition,
} from '../store/partitions.ts';
import { deleteRows, insertOwned } from '../store/retention.ts';
import { inTransaction } from '../store/transactions.ts';
import { archiveMonth, isPending, pagesOf, removeArchived, removeUnarchived } from './archive.ts';
import { type Retention, requireLease, requireStore, withRetentionLock } from './files.ts';
import {
  type Attempts,
  aboutMonth,
  clearFailures,
  createAttempts,
  type DueMonth,
  keyOf,
  type Plan,
  planRetention,
} from './plan.ts';

/** Result of a run. */
interface RetentionRun {
  /** Months of workspaces that were removed from the tables, counting events and purchases separately. */
  months: number;
  /** Archived rows. */
  archived: number;
  /** Rows that were deleted individually; rows of dropped partitions are not counted. */
  deleted: number;
  /** Dropped partitions. */
  dropped: number;
  /** Months of workspaces that failed. */
  failed: number;
}

/** How months are removed: `archive` keeps them in the archive, `discard` does not. */
type RemovalMode = 'archive' | 'discard';

interface RunContext {
  retention: Retention;
  mode: RemovalMode;
  attempts: Attempts;
}

/** Result for the months of one partition. */
type PartitionResult = Omit<RetentionRun, 'failed'>;

const partitionOf = ({ kind, month }: Pick<ArchivedMonth, 'kind' | 'month'>) =>
  `${kind}_${month.replace('-', '_')}`;

/**
 * Removes every month that is completely older than the retention of its workspace. The run may be killed at
 * any time: the next run continues from the index of the archive and the detached partitions. A month that
 * fails does not affect the others. If the archive itself fails, the remaining months are left to the next
 * run.
 *
 * @returns undefined if another process holds the retention lock
 * @throws if the run was stopped, has lost its lock, or Postgres is unavailable; completed steps are kept
 */
export function runRetention(unlocked: Retention, mode: RemovalMode): Promise<RetentionRun | undefined> {
  return withRetentionLock(unlocked, async (retention) => {
    const attempts = createAttempts(retention, 'archive');
    const context = { retention, mode, attempts };
    const { left: detached, dropped } = await finishAllDetached(context, await planRetention(retention));
    const results: PartitionResult[] = [{ months: 0, archived: 0, deleted: 0, dropped }];
    // Plan again, because rows may have been moved back from detached partitions.
    const { due, failed } = await planRetention(retention);
    const keys = new Set(due.map(keyOf));
    const isOver = (one: ArchivedMonth) => !keys.has(keyOf(one)) && !detached.has(partitionOf(one));
    await clearFailures(retention, 'archive', failed.filter(isOver));
    const tried = due.filter(
      (one) => !detached.has(partitionOf(one)) && !(one.waits && retention.heedsBackOff),
    );
    if (mode === 'archive' && tried.length > 0) requireStore(retention.store);
    const byPartition = new Map<string, DueMonth[]>();
    for (const month of tried)
      byPartition.set(partitionOf(month), [...(byPartition.get(partitionOf(month)) ?? []), month]);
    for (const [name, months] of byPartition) {
      if (attempts.isOver) break;
      retention.signal?.throwIfAborted();
      results.push(await removeMonth(context, { name, months }));
    }
    const sum = (what: keyof PartitionResult) => results.reduce((all, one) => all + one[what], 0);
    return {
      months: sum('months'),
      archived: sum('archived'),
      deleted: sum('deleted'),
      dropped: sum('dropped'),
      failed: attempts.failed.size,
    };
  });
}

/**
 * Finishes partitions that an interrupted run has detached.
 *
 * @returns the number of dropped partitions, and the names of the remaining ones
 */
async function finishAllDetached(
  { retention, attempts }: RunContext,
  { failed, untouched }: Plan,
): Promise<{ left: Set<string>; dropped: number }> {
  const left = new Set<string>();
  let dropped = 0;
  const waiting = new Set(failed.filter(({ due }) => !due).map(keyOf));
  for (const partition of await listPartitions(retention.pool)) {
    const { name, kind, month, isDetached } = partition;
    // A recent partition was detached by an operator; the run must not drop it.
    if (!isDetached || month >= untouched) continue;
    retention.signal?.throwIfAborted();
    const owners = await ownersIn(retention.pool, partition);
    const months = owners.map((workspaceId) => ({ workspaceId, kind, month }));
    const waits = retention.heedsBackOff && months.some((one) => waiting.has(keyOf(one)));
    const finish = () => finishDetached({ retention, attempts }, partition, []);
    if (!waits && (await attempts.attempt(months, finish))) dropped += 1;
    else left.add(name);
  }
  return { left, dropped };
}

/**
 * Removes one month of one table: the whole partition if no workspace keeps it, and otherwise the rows of
 * each workspace.
 */
async function removeMonth(
  { retention, mode, attempts }: RunContext,
  { name, months }: { name: string; months: readonly DueMonth[] },
): Promise<PartitionResult> {
  const { pool, log } = retention;
  const result: PartitionResult = { months: 0, archived: 0, deleted: 0, dropped: 0 };
  const ready: DueMonth[] = [];
  for (const month of months) {
    const archive = async () => {
      result.archived += await archiveMonth(retention, month);
    };
    if (mode === 'discard' || (!attempts.isOver && (await attempts.attempt([month], archive))))
      ready.push(month);
  }
  if (ready.length === 0) return result;
  const partition = (await listPartitions(pool)).find((one) => one.name === name);
  const due = new Set(ready.map(({ workspaceId }) => workspaceId));
  const owners = partition ? await ownersIn(pool, partition) : [];
  if (partition && owners.every((id) => due.has(id))) {
    const dropped = await attempts.attempt(ready, async () => {
      await requireLease(retention);
      await detachPartition(pool, partition, retention);
      log.info({ partition: name }, 'a partition was detached');
      await finishDetached({ retention, attempts }, partition, mode === 'discard' ? ready : []);
    });
    if (!dropped) return result;
    result.dropped += 1;
  }
  // Rows in the default partition, or in a partition that other workspaces still need.
  for (const month of ready) {
    if (attempts.isOver) return result;
    if (attempts.failed.has(keyOf(month))) continue;
    const isGone = await attempts.attempt([month], async () => {
      result.deleted +=
        mode === 'archive'
          ? await removeArchived(retention, month)
          : await removeUnarchived(retention, month);
      await clearFailures(retention, 'archive', [month]);
    });
    if (isGone) result.months += 1;
  }
  return result;
}

/**
 * Drops a detached partition, which receives no more writes, once its rows match the archive by number and
 * checksum of their ids. Late rows are moved back into the table for the next run. Files may have more rows
 * than the partition, because users may have been deleted since. If a file cannot be read, all rows of its
 * workspace are moved back.
 *
 * @param discarded months that are removed without an archive
 */
async function finishDetached(
  { retention, attempts }: Pick<RunContext, 'retention' | 'attempts'>,
  partition: Partition,
  discarded: readonly ArchivedMonth[],
): Promise<void> {
  const { pool, log } = retention;
  const withoutArchive = new Set(discarded.map(({ workspaceId }) => workspaceId));
  const settled: ArchiveFile[] = [];
  for (const { workspaceId, rows, checksum } of await countDetached(pool, partition)) {
    const month = { workspaceId, kind: partition.kind, month: partition.month };
    if (withoutArchive.has(workspaceId)) {
      await insertFile(pool, { ...month, id: newId(), state: 'removed', object: null, rows });
      continue;
    }
    const files = (await filesOfMonth(pool, month)).filter(isPending);
    const archived = files.reduce((sum, file) => sum + file.rows, 0);
    const sum = files.reduce((total, file) => total + BigInt(file.checksum), 0n);
    if (archived === rows && String(sum) === checksum) {
      settled.push(...files);
      continue;
    }
    log.info(
      { ...aboutMonth(month), rows, archived },
      'rows of a detached partition differed from its archived files; restoring the rows',
    );
    await attempts.attempt([month], async () => {
      await removeArchived(retention, month, partition.name);
    });
    await moveBack(retention, month, partition);
  }
  await requireLease(retention);
  await dropDetached(pool, partition, settled);
  log.info({ partition: partition.name }, 'a partition was dropped');
}

/** Moves rows that are not archived back into their table, page by page, except those of deleted users. */
async function moveBack(retention: Retention, month: ArchivedMonth, { name }: Partition): Promise<void> {
  const { pool } = retention;
  const { workspaceId, kind } = month;
  for await (const rows of pagesOf(pool, { workspaceId, kind, from: name })) {
    await requireLease(retention);
    await inTransaction(pool, async (tx) => {
      await insertOwned(tx, kind, { workspaceId, rows });
      await deleteRows(tx, name, { workspaceId, rows });
    });
  }
}
