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
import { alone, type Retention, requireLease, requireStore } from './files.ts';
import {
  type Attempts,
  aboutMonth,
  createAttempts,
  type DueMonth,
  keyOf,
  type Plan,
  planRetention,
  settle,
} from './plan.ts';

/** What a run has done. */
export interface RetentionRun {
  /** Months of workspaces that are gone from the tables, events and purchases apart. */
  months: number;
  /** Rows that were archived. */
  archived: number;
  /** Rows that were deleted one by one; those of a dropped partition go with it. */
  deleted: number;
  /** Partitions that were dropped. */
  dropped: number;
  /** Months of workspaces that failed, each by itself. */
  failed: number;
}

/** How months go: `archive`, or `discard` without one. */
export type Going = 'archive' | 'discard';

interface Under {
  retention: Retention;
  going: Going;
  attempts: Attempts;
}

/** What the months of one partition have come to. */
type Gone = Omit<RetentionRun, 'failed'>;

const partitionOf = ({ kind, month }: Pick<ArchivedMonth, 'kind' | 'month'>) =>
  `${kind}_${month.replace('-', '_')}`;

/**
 * Lets every month go that is wholly older than what is kept. It may be killed at any time: the next run takes up what
 * it finds, from the index of the archive and from the partitions that are detached. A month that fails leaves the others
 * alone; when the archive itself fails, the rest is for the next run.
 *
 * @returns undefined while somebody else is at it
 * @throws when it is told to stop, is not alone any more, or Postgres is away; what was done until then stands
 */
export function runRetention(given: Retention, going: Going): Promise<RetentionRun | undefined> {
  return alone(given, async (retention) => {
    const attempts = createAttempts(retention, 'archive');
    const under = { retention, going, attempts };
    const { left: detached, dropped } = await finishAllDetached(under, await planRetention(retention));
    const gone: Gone[] = [{ months: 0, archived: 0, deleted: 0, dropped }];
    // What was given back is planned as well.
    const { due, failed } = await planRetention(retention);
    const keys = new Set(due.map(keyOf));
    const isOver = (one: ArchivedMonth) => !keys.has(keyOf(one)) && !detached.has(partitionOf(one));
    await settle(retention, 'archive', failed.filter(isOver));
    const tried = due.filter(
      (one) => !detached.has(partitionOf(one)) && !(one.waits && retention.heedsBackOff),
    );
    if (going === 'archive' && tried.length > 0) requireStore(retention.store);
    const whole = new Map<string, DueMonth[]>();
    for (const month of tried)
      whole.set(partitionOf(month), [...(whole.get(partitionOf(month)) ?? []), month]);
    for (const [name, months] of whole) {
      if (attempts.isOver) break;
      retention.signal?.throwIfAborted();
      gone.push(await letGo(under, { name, months }));
    }
    const sum = (what: keyof Gone) => gone.reduce((all, one) => all + one[what], 0);
    return {
      months: sum('months'),
      archived: sum('archived'),
      deleted: sum('deleted'),
      dropped: sum('dropped'),
      failed: attempts.failed.size,
    };
  });
}

/** Partitions that an interrupted run has detached. @returns how many were dropped, and names of those that are left */
async function finishAllDetached(
  { retention, attempts }: Under,
  { failed, untouched }: Plan,
): Promise<{ left: Set<string>; dropped: number }> {
  const left = new Set<string>();
  let dropped = 0;
  const waiting = new Set(failed.filter(({ due }) => !due).map(keyOf));
  for (const partition of await listPartitions(retention.pool)) {
    const { name, kind, month, isDetached } = partition;
    // A late one was detached by somebody else, and is not ours to drop.
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

/** One month of one table: whole, if nobody keeps it, or else workspace by workspace. */
async function letGo(
  { retention, going, attempts }: Under,
  { name, months }: { name: string; months: readonly DueMonth[] },
): Promise<Gone> {
  const { pool, log } = retention;
  const gone: Gone = { months: 0, archived: 0, deleted: 0, dropped: 0 };
  const ready: DueMonth[] = [];
  for (const month of months) {
    const archive = async () => {
      gone.archived += await archiveMonth(retention, month);
    };
    if (going === 'discard' || (!attempts.isOver && (await attempts.attempt([month], archive))))
      ready.push(month);
  }
  if (ready.length === 0) return gone;
  const partition = (await listPartitions(pool)).find((one) => one.name === name);
  const due = new Set(ready.map(({ workspaceId }) => workspaceId));
  const owners = partition ? await ownersIn(pool, partition) : [];
  if (partition && owners.every((id) => due.has(id))) {
    const dropped = await attempts.attempt(ready, async () => {
      await requireLease(retention);
      await detachPartition(pool, partition, retention);
      log.info({ partition: name }, 'a partition was detached');
      await finishDetached({ retention, attempts }, partition, going === 'discard' ? ready : []);
    });
    if (!dropped) return gone;
    gone.dropped += 1;
  }
  // What lies in the default partition, and what is not the whole of a partition.
  for (const month of ready) {
    if (attempts.isOver) return gone;
    if (attempts.failed.has(keyOf(month))) continue;
    const isGone = await attempts.attempt([month], async () => {
      gone.deleted +=
        going === 'archive'
          ? await removeArchived(retention, month)
          : await removeUnarchived(retention, month);
      await settle(retention, 'archive', [month]);
    });
    if (isGone) gone.months += 1;
  }
  return gone;
}

/**
 * Drops a detached partition, which nobody writes any more, once its rows are those of the archive, by their number and
 * the checksum of their ids. Rows that came late go back into the table, for the next run; files that have more, since
 * users were deleted meanwhile, are no hindrance. Where a file cannot be read, all rows of its workspace go back.
 *
 * @param discarded months that go without an archive
 */
async function finishDetached(
  { retention, attempts }: Pick<Under, 'retention' | 'attempts'>,
  partition: Partition,
  discarded: readonly ArchivedMonth[],
): Promise<void> {
  const { pool, log } = retention;
  const gone = new Set(discarded.map(({ workspaceId }) => workspaceId));
  const settled: ArchiveFile[] = [];
  for (const { workspaceId, rows, checksum } of await countDetached(pool, partition)) {
    const month = { workspaceId, kind: partition.kind, month: partition.month };
    if (gone.has(workspaceId)) {
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
    await giveBack(retention, month, partition);
  }
  await requireLease(retention);
  await dropDetached(pool, partition, settled);
  log.info({ partition: partition.name }, 'a partition was dropped');
}

/** Rows that the archive has not are put back into their table, page by page, but for those of deleted users. */
async function giveBack(retention: Retention, month: ArchivedMonth, { name }: Partition): Promise<void> {
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
