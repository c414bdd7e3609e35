import type { Definition } from '../../profile/segment.ts';
import type { Pool } from '../../store/database.ts';
import { evaluateUsers } from '../../store/segments.ts';

/** Users per statement. The first statement reads few; later statements read as many as the remaining time allows. */
const USERS_PER_STATEMENT = { first: 100, least: 20, most: 5000 };

/** Returns how many users the next statement reads, so that it ends within the milliseconds that are left. */
export function nextLimit(read: number, elapsed: number, left: number): number {
  const { least, most: max } = USERS_PER_STATEMENT;
  const affordable = Math.floor((left * read) / Math.max(1, elapsed));
  return Math.max(least, Math.min(max, affordable));
}

interface Counting {
  workspaceId: string;
  definition: Definition;
  /** Whether to count the users of each filter in `all` or `any` as well. */
  bySubfilter: boolean;
  /** Id of the last user of the previous count. */
  after: string;
  /** Maximum number of matching ids to return. */
  sample: number;
  /** Milliseconds after which the count ends with an intermediate result. */
  milliseconds: number;
}

/** Number of users that were evaluated, and of users that match the filter and its parts. */
interface CountedUsers {
  read: number;
  matched: number;
  parts: number[];
  sample: string[];
  /** Id of the last evaluated user; undefined if all users of the workspace were evaluated. */
  after: string | undefined;
}

/** Counts users for a limited time, the oldest first. */
export async function countUsers(
  pool: Pick<Pool, 'query'>,
  { after: from, sample: max, milliseconds, ...filter }: Counting,
): Promise<CountedUsers> {
  const started = performance.now();
  const counted: CountedUsers = { read: 0, matched: 0, parts: [], sample: [], after: from };
  for (let limit = USERS_PER_STATEMENT.first; ; ) {
    const page = await evaluateUsers(pool, {
      ...{ ...filter, after: counted.after!, limit, sample: max - counted.sample.length },
    });
    counted.read += page.read;
    counted.matched += page.matched;
    counted.parts = page.parts.map((matched, index) => (counted.parts[index] ?? 0) + matched);
    counted.sample.push(...page.sample);
    counted.after = page.read < limit ? undefined : page.last;
    const elapsed = performance.now() - started;
    if (counted.after === undefined || elapsed >= milliseconds) return counted;
    limit = nextLimit(counted.read, elapsed, milliseconds - elapsed);
  }
}
