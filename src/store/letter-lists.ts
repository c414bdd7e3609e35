import type { Pool } from './database.ts';
import { LAST, type ListedLetter, listedColumns } from './dead-letter-groups.ts';
import { forLetters, type LetterKey, lettersTable, letterValues } from './dead-letters.ts';

/**
 * Lists of dead letters over all workspaces, for who works by hand. Keys come first, of the table, and then the letters
 * of those, of the view that leaves out what a delete has taken away. A distributed Postgres has that view for one
 * workspace at a time.
 */

/** Which letters; absent: all. */
export interface WantedLetters {
  workspaceId?: string | undefined;
  states?: string[] | undefined;
}

/** Before every id. */
const FIRST = '00000000-0000-0000-0000-000000000000';

const wanted = `
    ($1::uuid is null or dead_letters.workspace_id = $1)
    and ($2::text[] is null or dead_letters.state = any($2))`;

/** By a range of the primary key, or of the index of ids of every shard. */
const keysStatement = (isNewest: boolean) => `
  select dead_letters.id, dead_letters.workspace_id as "workspaceId"
  from dead_letters
  where ${wanted} and dead_letters.id ${isNewest ? '<' : '>'} $3::uuid
  order by dead_letters.id ${isNewest ? 'desc' : 'asc'}
  limit $4::integer`;

const newestKeysStatement = keysStatement(true);
const oldestKeysStatement = keysStatement(false);

/** Where a page begins: behind which id, and in which direction. */
interface KeyPage {
  isNewest: boolean;
  from: string;
  limit: number;
}

async function keysOf(
  pool: Pool,
  { workspaceId, states }: WantedLetters,
  { isNewest, from, limit }: KeyPage,
): Promise<LetterKey[]> {
  const { rows } = await pool.query<LetterKey>({
    name: isNewest ? 'newest-letter-keys' : 'oldest-letter-keys',
    text: isNewest ? newestKeysStatement : oldestKeysStatement,
    values: [workspaceId, states, from, limit],
  });
  return rows;
}

/** By primary keys. */
const listLettersStatement = `select ${listedColumns} from ${lettersTable}`;

/** In the order of the ids. */
async function lettersOf(pool: Pool, keys: LetterKey[]): Promise<ListedLetter[]> {
  const letters = await forLetters(pool, keys, async (some) => {
    const { rows } = await pool.query<ListedLetter>({
      name: 'list-letters',
      text: listLettersStatement,
      values: letterValues(some),
    });
    return rows;
  });
  return letters.sort((one, other) => (one.id < other.id ? -1 : 1));
}

/**
 * A page of dead letters, the one accepted last first: an id begins with the time at which its object was accepted.
 *
 * @param page.before only those accepted before this one
 */
export async function listLetters(
  pool: Pool,
  which: WantedLetters,
  { before = LAST, limit }: { before?: string | undefined; limit: number },
): Promise<ListedLetter[]> {
  const found: ListedLetter[] = [];
  for (let from = before; found.length < limit; ) {
    const keys = await keysOf(pool, which, { isNewest: true, from, limit });
    if (keys.length > 0) found.push(...(await lettersOf(pool, keys)).reverse());
    if (keys.length < limit) break;
    from = keys.at(-1)!.id;
  }
  return found.slice(0, limit);
}

/** Ids of dead letters in the order in which their objects were accepted, `size` at a time; never an empty page. */
export async function* pagesOfLetters(pool: Pool, which: WantedLetters, size: number) {
  for (let from = FIRST; ; ) {
    const keys = await keysOf(pool, which, { isNewest: false, from, limit: size });
    const ids = keys.length > 0 ? (await lettersOf(pool, keys)).map(({ id }) => id) : [];
    if (ids.length > 0) yield ids;
    if (keys.length < size) return;
    from = keys.at(-1)!.id;
  }
}

/** Reads all that is counted: somebody asks for it by hand, to see how far a replay is. */
const countLettersStatement = `
  select count(*)::integer as count
  from dead_letters
  where ${wanted}`;

/** How many there are, those of deleted users that are being erased among them. */
export async function countLetters(pool: Pool, { workspaceId, states }: WantedLetters): Promise<number> {
  const { rows } = await pool.query<{ count: number }>({
    name: 'count-letters',
    text: countLettersStatement,
    values: [workspaceId, states],
  });
  return rows[0]!.count;
}
