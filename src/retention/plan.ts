import {
  type ArchivedMonth,
  listFiles,
  type RetentionOfWorkspace,
  summarizeRetention,
} from '../store/archive-files.ts';
import type { ActivityTable } from '../store/erasures.ts';
import { countStretch, findNextId } from '../store/retention.ts';
import { listFailures, type RetentionFailure, readClock } from '../store/retention-runs.ts';
import type { Retention } from './files.ts';
import { type Clocks, firstKept, firstUntouched, following, idsOf, type Month, monthOf } from './months.ts';

export const kinds: readonly ActivityTable[] = ['events', 'purchases'];

const PAGE = 100;

/** Of every installation: no id is smaller. */
const FIRST_ID = '00000000-0000-0000-0000-000000000000';

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
  return { database: (await readClock(pool)).now, process: new Date() };
}

/**
 * Months of workspaces that are wholly older than what is kept, and have rows, or files that a run has not finished. A
 * look-up for each; a month that was restored waits until its time is over.
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
  for (const [workspaceId, until] of kept) {
    const before = idsOf(until).after;
    for (const kind of kinds) {
      for (let after = FIRST_ID; ; ) {
        const id = await findNextId(pool, kind, { workspaceId, after, before });
        if (id === undefined) break;
        const one = { workspaceId, kind, month: monthOf(id), workspace: names.get(workspaceId)! };
        found.set(keyOf(one), { ...one, waits: false });
        after = idsOf(following(one.month)).after;
      }
    }
  }
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

/** Rows of a due month, up to MOST_COUNTED. */
export function countRows(
  { pool }: Pick<Retention, 'pool'>,
  { workspaceId, kind, month }: DueMonth,
): Promise<number> {
  return countStretch(pool, kind, { workspaceId, ...idsOf(month), limit: MOST_COUNTED });
}
