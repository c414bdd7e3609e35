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
import { BEGINNING, countRows, lookAtMonths, type Place } from '../store/retention.ts';
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

/** Rows of the default partition of whose months one statement tells. */
const LOOKED_AT = 5000;

/** Months that a workspace keeps; undefined: for ever. */
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

/** A month that is to go. */
export interface DueMonth extends ArchivedMonth {
  workspace: string;
  /** Its last try was vain, and the next one by schedule is not due yet. */
  waits: boolean;
}

/** What the log says of a month. */
export const aboutMonth = ({ workspaceId, kind, month }: ArchivedMonth) => ({
  ...{ workspace_id: workspaceId, month, kind },
});

/** One month of one workspace and table. */
export const keyOf = ({ workspaceId, kind, month }: ArchivedMonth) => `${month} ${kind} ${workspaceId}`;

/** What a plan shows of rows: a month may have very many. */
export const MOST_COUNTED = 1_000_000;

export interface Plan {
  /** The oldest month first. */
  due: DueMonth[];
  /** By workspace, the first month that it keeps; without it: all. */
  kept: Map<string, Month>;
  /** Months of which the last try to archive them was vain, due or not. */
  failed: RetentionFailure[];
  /** The first month that no run touches. */
  untouched: Month;
}

export async function readClocks({ pool }: Pick<Retention, 'pool'>): Promise<Clocks> {
  return { database: (await readClock(pool)).now, process: nowDate() };
}

/**
 * Months of workspaces that are wholly older than what is kept, and have rows, or files that a run has not finished. A
 * look-up for each, and a walk through what lies in the default partitions; a month that was restored waits until its time is
 * over.
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
  const found = new Map<string, DueMonth>();
  const held = new Set<string>();
  for await (const file of listFiles(pool, ['archiving', 'verified', 'restored', 'replaced'])) {
    const { workspaceId, kind, month } = file;
    if (file.held) held.add(keyOf(file));
    else if (month < (kept.get(workspaceId) ?? ''))
      found.set(keyOf(file), { workspaceId, kind, month, workspace: names.get(workspaceId)!, waits: false });
  }
  for await (const one of monthsBefore(pool, kept))
    found.set(keyOf(one), { ...one, workspace: names.get(one.workspaceId)!, waits: false });
  for (const key of held) found.delete(key);
  const failed: RetentionFailure[] = [];
  for await (const failure of listFailures(pool)) {
    if (failure.task !== 'archive') continue;
    failed.push(failure);
    const due = found.get(keyOf(failure));
    if (due && !failure.due) found.set(keyOf(due), { ...due, waits: true });
  }
  const due = [...found.keys()].sort().map((key) => found.get(key)!);
  return { due, kept, failed, untouched: firstUntouched(clocks) };
}

/** Months of which there are rows, before the first that their workspaces keep; some come more than once. */
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
      for (let behind: Place | null = BEGINNING; behind !== null; ) {
        const look = { behind, before, limit: LOOKED_AT };
        const { months, place } = await lookAtMonths(pool, { workspaceId, kind, from }, look);
        for (const month of months) yield { workspaceId, kind, month };
        behind = place;
      }
    }
  }
}

/** Rows of a due month, up to MOST_COUNTED. */
export async function countDue({ pool }: Pick<Retention, 'pool'>, due: DueMonth): Promise<number> {
  const { workspaceId, kind, month } = due;
  const from = await partitionWith(pool, due);
  return countRows(pool, { workspaceId, kind, from }, { ...idsOf(month), limit: MOST_COUNTED });
}

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

export function createAttempts(
  { pool, log, signal, asJob = (_id, work) => work() }: Retention,
  task: RetentionTask,
): Attempts {
  let inRow = 0;
  const attempts: Attempts = {
    failed: new Set(),
    isOver: false,
    async attempt(months, work) {
      try {
        await asJob(jobIdOf(task, months), work);
        inRow = 0;
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
        inRow = isOfArchive ? inRow + 1 : 0;
        if (inRow >= MOST_IN_ROW) attempts.isOver = true;
        return false;
      }
    },
  };
  return attempts;
}

/** The same UUID for the same months and task. */
function jobIdOf(task: RetentionTask, months: readonly ArchivedMonth[]): string {
  const hash = createHash('sha256')
    .update([task, ...months.map(keyOf)].join('\n'))
    .digest('hex');
  return hash.slice(0, 32).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/** Whatever was wrong with these months is over. */
export async function settle(
  { pool }: Retention,
  task: RetentionTask,
  months: readonly ArchivedMonth[],
): Promise<void> {
  for (const month of months) await clearFailure(pool, { ...month, task });
}

/** A month, UTC: `2026-01`. */
export type Month = string;

/** Ids of a month are behind `after` and before `before`. */
export function idsOf(month: Month): { after: string; before: string } {
  return { after: floorOf(startOf(month)), before: floorOf(startOf(following(month))) };
}

function startOf(month: Month): number {
  return Date.parse(`${month}-01T00:00:00Z`);
}

function following(month: Month): Month {
  const date = new Date(startOf(month));
  date.setUTCMonth(date.getUTCMonth() + 1);
  return monthOfDate(date.getTime());
}

/** What two clocks say: Postgres's, and this process's, which can only keep months for longer. */
interface Clocks {
  database: Date;
  process: Date;
}

/** The first month that no run touches, whatever a setting says: the one before this month, by the clock that is behind. */
export function firstUntouched({ database, process }: Clocks): Month {
  const now = new Date(Math.min(database.getTime(), process.getTime()));
  return monthOfDate(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1));
}

/**
 * The first month that stays, by Postgres's clock: those before it are wholly older than so many months.
 * @param months at least 1
 */
export function firstKept(clocks: Clocks, months: number): Month {
  const cut = new Date(clocks.database);
  // The 31st has no counterpart in a shorter month: its last day is meant, which is of the same month.
  cut.setUTCDate(1);
  cut.setUTCMonth(cut.getUTCMonth() - months);
  const [kept, untouched] = [monthOfDate(cut.getTime()), firstUntouched(clocks)];
  return kept < untouched ? kept : untouched;
}

function monthOfDate(milliseconds: number): Month {
  return new Date(milliseconds).toISOString().slice(0, 7);
}
