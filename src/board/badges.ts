import type { Problem } from '../checks/check.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import type { Pool } from '../store/database.ts';
import { countWaitingByWorkspace, type WaitingByWorkspace } from '../store/dead-letters.ts';
import type { Viewer } from './access.ts';
import type { Fleet } from './fleet.ts';
import type { MenuBadge } from './layout.ts';
import { maySee } from './problems.ts';

/** Milliseconds for which a reading is reused, and for which it is shown while a new one is made. */
const FRESH_MS = 5000;
const STALE_MS = 60_000;

/** Milliseconds that a page waits for the first reading. Later pages do not wait. */
const WAIT_MS = 300;

/** Maximum number of dead letters read for the counts. */
const MAX_DEAD_LETTERS = 5000;

interface Reading {
  problems: readonly Problem[];
  /** Absent if Postgres did not answer. */
  letters: WaitingByWorkspace | undefined;
}

/**
 * Creates the reader of the numbers next to the menu: problems of the installation, of streams, syncs and exports, and
 * dead letters. All viewers share one reading, and each sees the part that the viewer's rights allow.
 */
export function createBadges({ fleet, pool }: { fleet: Fleet; pool: Pool }) {
  let last: { at: number; reading: Reading } | undefined;
  let pending: Promise<Reading> | undefined;

  async function read(): Promise<Reading> {
    const letters = withTimeout(WAIT_MS, countWaitingByWorkspace(pool, MAX_DEAD_LETTERS)).catch(
      () => undefined,
    );
    const { problems } = await fleet.read();
    return { problems, letters: await letters };
  }

  function refresh(): Promise<Reading> {
    pending ??= read()
      .then((reading) => {
        last = { at: performance.now(), reading };
        return reading;
      })
      .finally(() => {
        pending = undefined;
      });
    return pending;
  }

  /** @param listed problems that the page lists; absent if it lists none */
  return async (viewer: Viewer, listed?: readonly Problem[]): Promise<Record<string, MenuBadge>> => {
    const age = last ? performance.now() - last.at : Number.POSITIVE_INFINITY;
    const refreshed = age > FRESH_MS ? refresh() : undefined;
    const reading =
      age < STALE_MS ? last!.reading : await withTimeout(WAIT_MS, refreshed!).catch(() => undefined);
    const problems = listed ?? reading?.problems;
    return problems ? badgesOf({ problems, letters: reading?.letters }, viewer) : {};
  };
}

export type Badges = ReturnType<typeof createBadges>;

/** Counts problems, in the tone of the most severe; undefined if there are none. */
export function problemBadge(problems: readonly Problem[]): MenuBadge | undefined {
  if (problems.length === 0) return undefined;
  const has = (severity: Problem['severity']) => problems.some((one) => one.severity === severity);
  return {
    ...{ text: String(problems.length), unit: problems.length === 1 ? 'problem' : 'problems' },
    tone: has('critical') ? 'bad' : has('warning') ? 'warn' : 'calm',
  };
}

/** Returns the badges that the viewer may see, by the path of their page. */
function badgesOf({ problems, letters }: Reading, viewer: Viewer): Record<string, MenuBadge> {
  const badges: Record<string, MenuBadge> = {};
  const seen = problems.filter((problem) => maySee(viewer, problem));
  const add = (path: string, of: Problem[]) => {
    const counted = problemBadge(of);
    if (counted) badges[path] = counted;
  };
  add('/', seen);
  for (const path of ['/streams', '/syncs', '/exports'])
    add(
      path,
      seen.filter(({ link }) => link === path || link.startsWith(`${path}/`) || link.startsWith(`${path}?`)),
    );
  const waiting = letters && waitingFor(letters, viewer);
  if (letters && waiting)
    badges['/dead-letters'] = {
      ...{ text: `${waiting}${letters.isMore ? '+' : ''}`, unit: 'need attention', tone: 'warn' },
    };
  return badges;
}

function waitingFor({ counts }: WaitingByWorkspace, viewer: Viewer): number {
  const visible = counts.filter(({ workspaceId }) => viewer.can('delivery', workspaceId));
  return visible.reduce((sum, { count }) => sum + count, 0);
}
