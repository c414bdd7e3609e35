import { createHash } from 'node:crypto';
import { ObjectStoreError } from '../object-store/object-store.ts';
import { nowDate } from '../platform/clock.ts';
import { floorOf } from '../platform/ids.ts';
import {
  type ArchivedMonth,
  listFiles,
  type RetentionOfWorkspace,
  summarizeRetention,
} from '../store/archive-files.ts';
import type { Pool } from '../store/database.ts';
import type { ActivityTable } from '../store/erasures.ts';
import { defaultOf, listPartitions, ownersIn, partitionWith } from '../store/partitions.ts';
import { BEGINNING, countRows, type RowPosition, scanMonths } from '../store/retention.ts';
import {
  clearFailure,
  listFailures,
  type RetentionFailure,
  type RetentionTask,
  readClock,
  recordFailure,
} from '../store/retention-runs.ts';
import type { Retention } from './files.ts';

export const kinds: readonly ActivityTable[] = ['events', 'purchases'];

const PAGE = 100;

/** Rows of the default partition that one statement reads to find their months. */
const MONTHS_PAGE = 5000;

/** Returns the number of months that a workspace keeps. Undefined: no limit. */
export function monthsKept(
  { own, months }: Pick<RetentionOfWorkspace, 'own' | 'months'>,
  ofAll: number,
): number | undefined {
  return (own ? months : ofAll) || undefined;
}

export async function* eachWorkspace({
  pool,
}: Pick<Retention, 'pool'>): AsyncGenerator<RetentionOfWorkspace> {
  let after: string | undefined;
  for (;;) {
    const page = await summarizeRetention(pool, { after, limit: PAGE });
    yield* page;
    if (page.length < PAGE) return;
    after = page.at(-1)!.workspaceId;
  }
}

/** A month that is due for removal. */
export interface DueMonth extends ArchivedMonth {
  workspace: string;
  /** Whether its last attempt failed and the next scheduled one is not due yet. */
  waits: boolean;
}

/** Returns the log fields of a month. */
export const aboutMonth = ({ workspaceId, kind, month }: ArchivedMonth) => ({
  ...{ workspace_id: workspaceId, month, kind },
});

/** Returns a key for one month of one workspace and table. */
export const keyOf = ({ workspaceId, kind, month }: ArchivedMonth) => `${month} ${kind} ${workspaceId}`;

/** Maximum number of rows that a plan counts, because a month may have very many. */
export const MAX_COUNTED = 1_000_000;

export interface Plan {
  /** Due months, oldest first. */
  due: DueMonth[];
  /** First month to keep, by workspace. Workspaces without an entry keep all months. */
  kept: Map<string, Month>;
  /** Months whose last attempt to archive them failed, due or not. */
  failed: RetentionFailure[];
  /** First month that no run touches. */
  untouched: Month;
}

export async function readClocks({ pool }: Pick<Retention, 'pool'>): Promise<Clocks> {
  return { database: (await readClock(pool)).now, process: nowDate() };
}

/**
 * Plans a run: months that are completely older than the retention of their workspace, and have rows or
 * unfinished files. Needs a lookup for each month and a scan of the default partitions. A restored month is
 * skipped until its time is over.
 */
export async function planRetention(retention: Retention): Promise<Plan> {
  const { pool, months } = retention;
  const clocks = await readClocks(retention);
  const kept = new Map<string, Month>();
  const names = new Map<string, string>();
  for await (const workspace of eachWorkspace(retention)) {
    const keeps = monthsKept(workspace, months);
    if (keeps === undefined) continue;
    kept.set(workspace.workspaceId, firstKept(clocks, keeps));
    names.set(workspace.workspaceId, workspace.name);
  }
  const dueByKey = new Map<string, DueMonth>();
  const held = new Set<string>();
  for await (const file of listFiles(pool, ['archiving', 'verified', 'restored', 'replaced'])) {
    const { workspaceId, kind, month } = file;
    if (file.held) held.add(keyOf(file));
    else if (month < (kept.get(workspaceId) ?? ''))
      dueByKey.set(keyOf(file), {
        workspaceId,
        kind,
        month,
        workspace: names.get(workspaceId)!,
        waits: false,
      });
  }
  for await (const one of monthsBefore(pool, kept))
    dueByKey.set(keyOf(one), { ...one, workspace: names.get(one.workspaceId)!, waits: false });
  for (const key of held) dueByKey.delete(key);
  const failed: RetentionFailure[] = [];
  for await (const failure of listFailures(pool)) {
    if (failure.task !== 'archive') continue;
    failed.push(failure);
    const due = dueByKey.get(keyOf(failure));
    if (due && !failure.due) dueByKey.set(keyOf(due), { ...due, waits: true });
  }
  const due = [...dueByKey.keys()].sort().map((key) => dueByKey.get(key)!);
  return { due, kept, failed, untouched: firstUntouched(clocks) };
}

/**
 * Yields months before the retention of their workspaces that have rows. A month may be yielded more than
 * once.
 */
async function* monthsBefore(pool: Pool, kept: ReadonlyMap<string, Month>): AsyncGenerator<ArchivedMonth> {
  const last = [...kept.values()].sort().at(-1) ?? '';
  for (const partition of await listPartitions(pool)) {
    const { kind, month, isDetached } = partition;
    if (isDetached || month >= last) continue;
    for (const workspaceId of await ownersIn(pool, partition))
      if (month < (kept.get(workspaceId) ?? '')) yield { workspaceId, kind, month };
  }
  for (const kind of kinds) {
    const from = defaultOf(kind);
    for (const workspaceId of await ownersIn(pool, { name: from })) {
      const until = kept.get(workspaceId);
      if (until === undefined) continue;
      const before = idsOf(until).after;
      for (let position: RowPosition | null = BEGINNING; position !== null; ) {
        const page = { behind: position, before, limit: MONTHS_PAGE };
        const { months, place: last } = await scanMonths(pool, { workspaceId, kind, from }, page);
        for (const month of months) yield { workspaceId, kind, month };
        position = last;
      }
    }
  }
}

/** Counts the rows of a due month, up to MAX_COUNTED. */
export async function countDue({ pool }: Pick<Retention, 'pool'>, due: DueMonth): Promise<number> {
  const { workspaceId, kind, month } = due;
  const from = await partitionWith(pool, due);
  return countRows(pool, { workspaceId, kind, from }, { ...idsOf(month), limit: MAX_COUNTED });
}

/** Number of consecutive failures of the archive itself after which the run stops using it. */
const MAX_ARCHIVE_FAILURES = 3;

/** Runs work on months, isolates failures and records them. */
export interface Attempts {
  /** Keys (`keyOf`) of the months that failed in this run. */
  failed: Set<string>;
  /** Whether the archive itself fails. The remaining months are left to the next run. */
  isOver: boolean;
  /**
   * Runs work on these months. A failure is logged, recorded with its back-off, and does not affect other
   * months.
   *
   * @returns whether the work succeeded
   * @throws if the run was stopped or has lost its lock
   */
  attempt(months: readonly ArchivedMonth[], work: () => Promise<void>): Promise<boolean>;
}

export function createAttempts(
  { pool, log, signal, asJob = (_id, work) => work() }: Retention,
  task: RetentionTask,
): Attempts {
  let archiveFailures = 0;
  const attempts: Attempts = {
    failed: new Set(),
    isOver: false,
    async attempt(months, work) {
      try {
        await asJob(jobIdOf(task, months), work);
        archiveFailures = 0;
        return true;
      } catch (error) {
        signal?.throwIfAborted();
        const reason = error instanceof Error ? error.message : String(error);
        for (const { workspaceId, month, kind } of months) {
          log.error(
            { err: error, ...aboutMonth({ workspaceId, month, kind }), task },
            'retention of a month failed; other months continue',
          );
          const key = keyOf({ workspaceId, month, kind });
          if (attempts.failed.has(key)) continue;
          attempts.failed.add(key);
          await recordFailure(pool, { workspaceId, month, kind, task, reason });
        }
        const isOfArchive = error instanceof ObjectStoreError && error.reason !== 'missing';
        archiveFailures = isOfArchive ? archiveFailures + 1 : 0;
        if (archiveFailures >= MAX_ARCHIVE_FAILURES) attempts.isOver = true;
        return false;
      }
    },
  };
  return attempts;
}

/** Returns a UUID that depends only on the months and the task. */
function jobIdOf(task: RetentionTask, months: readonly ArchivedMonth[]): string {
  const hash = createHash('sha256')
    .update([task, ...months.map(keyOf)].join('\n'))
    .digest('hex');
  return hash.slice(0, 32).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/** Deletes the recorded failures of these months. */
export async function clearFailures(
  { pool }: Retention,
  task: RetentionTask,
  months: readonly ArchivedMonth[],
): Promise<void> {
  for (const month of months) await clearFailure(pool, { ...month, task });
}

/** A month in UTC, for example `2026-01`. */
export type Month = string;

/** Returns the id range of a month: after `after` and before `before`. */
export function idsOf(month: Month): { after: string; before: string } {
  return { after: floorOf(startOf(month)), before: floorOf(startOf(nextMonth(month))) };
}

function startOf(month: Month): number {
  return Date.parse(`${month}-01T00:00:00Z`);
}

function nextMonth(month: Month): Month {
  const date = new Date(startOf(month));
  date.setUTCMonth(date.getUTCMonth() + 1);
  return monthOfDate(date.getTime());
}

/** Times of Postgres and of this process. The process's clock can only make a run keep months longer. */
interface Clocks {
  database: Date;
  process: Date;
}

/**
 * Returns the first month that no run touches, whatever the settings: the month before the current one, by
 * the clock that is behind.
 */
export function firstUntouched({ database, process }: Clocks): Month {
  const now = new Date(Math.min(database.getTime(), process.getTime()));
  return monthOfDate(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1));
}

/**
 * Returns the first month to keep, by Postgres's clock. Earlier months are completely older than this number
 * of months.
 *
 * @param months at least 1
 */
export function firstKept(clocks: Clocks, months: number): Month {
  const cut = new Date(clocks.database);
  // The 31st does not exist in every month. Any day of the month gives the same result.
  cut.setUTCDate(1);
  cut.setUTCMonth(cut.getUTCMonth() - months);
  const [kept, untouched] = [monthOfDate(cut.getTime()), firstUntouched(clocks)];
  return kept < untouched ? kept : untouched;
}

function monthOfDate(milliseconds: number): Month {
  return new Date(milliseconds).toISOString().slice(0, 7);
}
