import { MAX_UUID, NIL_UUID } from '../platform/ids.ts';
import { type Actor, audited } from './audit.ts';
import { type Pool, storable } from './database.ts';
import { KIND, type ListedLetter, listedColumns } from './dead-letter-groups.ts';
import {
  forLetters,
  type LetterKey,
  lettersAudited,
  lettersTable,
  letterValues,
  locateLetters,
} from './dead-letters.ts';
import { forEachWorkspace } from './distributed.ts';

/**
 * Lists of dead letters over all workspaces, for who works by hand. Keys come first, of the table, and then the letters
 * of those, of the view that leaves out what a delete has taken away. A distributed Postgres has that view for one
 * workspace at a time.
 */

/** Which letters; absent: all. */
interface WantedLetters {
  workspaceId?: string | undefined;
  states?: string[] | undefined;
}

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
  { before = MAX_UUID, limit }: { before?: string | undefined; limit: number },
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
  for (let from = NIL_UUID; ; ) {
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

/** One dead letter, with all that is known of it. */
export interface WholeLetter extends ListedLetter {
  jobName: string;
  /** JSON as it is kept; null: it is longer than may be shown. */
  object: string | null;
  /** Bytes of it. */
  bytes: number;
  replayedAt: Date | null;
  discardedAt: Date | null;
  mendedAt: Date | null;
  mendedBy: string | null;
}

/** By primary key. How long a value is stands in front of it: what is too large is not unpacked. */
const readLetterStatement = `
  select ${listedColumns}, letters.job_name as "jobName",
    octet_length(letters.object::text) as bytes,
    case when octet_length(letters.object::text) <= $3::integer then letters.object::text end as object,
    letters.replayed_at as "replayedAt", letters.discarded_at as "discardedAt",
    letters.mended_at as "mendedAt", letters.mended_by as "mendedBy"
  from ${lettersTable}`;

/** @param most bytes of the object's JSON that are read */
export async function readLetter(pool: Pool, id: string, most: number): Promise<WholeLetter | undefined> {
  const keys = await locateLetters(pool, [id]);
  if (keys.length === 0) return undefined;
  const { rows } = await pool.query<WholeLetter>({
    name: 'read-dead-letter',
    text: readLetterStatement,
    values: [...letterValues(keys), most],
  });
  return rows[0];
}

// Of the view: whatever a delete has taken away is not there. Locks in id order, as every statement on dead letters does.
const discardStatement = `
with waiting as (
  select letters.workspace_id, letters.id
    from ${lettersTable}
   where letters.id = any($2::uuid[]) and letters.state = 'waiting'
   order by letters.id
     for update of letters
)
update dead_letters
   set state = 'discarded', discarded_at = now(), discarded_by = $3, discard_reason = $4
  from waiting
 where dead_letters.workspace_id is not distinct from waiting.workspace_id and dead_letters.id = waiting.id
returning dead_letters.id, dead_letters.workspace_id as "workspaceId"`;

/** Who closes dead letters, and why: for whoever reads it later. */
interface Discard {
  by: string;
  reason: string;
  /** For the audit. */
  actor: Actor;
}

/** Gives up those of the dead letters that wait: nobody replays them any more. @returns their ids */
export async function discardDeadLetters(
  pool: Pool,
  ids: readonly string[],
  { by, reason, actor }: Discard,
): Promise<string[]> {
  return audited(pool, actor, async (tx) => {
    const rows = await forLetters(tx, await locateLetters(tx, ids), async (keys) => {
      const values = [...letterValues(keys), storable(by), storable(reason)];
      return (await tx.query<LetterKey>({ name: 'discard-dead-letters', text: discardStatement, values }))
        .rows;
    });
    const entries = lettersAudited('dead_letters.discard', rows);
    return { result: rows.map(({ id }) => id), entries };
  });
}

// By primary key. The names that the letter had stay: whoever was named is found by a delete, before and after.
const mendStatement = `
with waiting as (
  select letters.workspace_id, letters.id
    from ${lettersTable}
   where letters.id = any($2::uuid[]) and letters.state = 'waiting'
     for update of letters
)
update dead_letters
   set original_object = coalesce(dead_letters.original_object, dead_letters.object), object = $3::json,
       mended_at = now(), mended_by = $4,
       identifiers = array(select distinct names.name from unnest(dead_letters.identifiers || $5::text[]) as names (name))
  from waiting
 where dead_letters.workspace_id is not distinct from waiting.workspace_id and dead_letters.id = waiting.id
returning dead_letters.id, dead_letters.workspace_id as "workspaceId"`;

/** What takes an object's place. */
interface Mended {
  /** JSON text. */
  object: string;
  by: string;
  /** Whom it names, as `identifierText` tells them. */
  names: string[];
  /** For the audit. */
  actor: Actor;
}

/** Puts a mended object into the place of one that waits; what came is kept. @returns false: it does not wait */
export async function mendDeadLetter(
  pool: Pool,
  id: string,
  { object, by, names, actor }: Mended,
): Promise<boolean> {
  return audited(pool, actor, async (tx) => {
    const rows = await forLetters(tx, await locateLetters(tx, [id]), async (keys) => {
      const values = [...letterValues(keys), object, storable(by), names.map(storable)];
      return (await tx.query<LetterKey>({ name: 'mend-dead-letter', text: mendStatement, values })).rows;
    });
    return { result: rows.length === 1, entries: lettersAudited('dead_letters.mend', rows) };
  });
}

/** By the end of each workspace's part of dead_letters_closed, or of a kind's part of dead_letters_closed_kind. */
const closedStatement = (ofKind: string, order: string) => `
  select ${listedColumns}
  from unnest($1::uuid[]) as wanted (workspace_id)
  cross join lateral (
    select dead_letters.workspace_id, dead_letters.id
    from dead_letters
    where dead_letters.workspace_id = wanted.workspace_id
      and dead_letters.state = $2::text and dead_letters.state in ('replaying', 'discarded')
      and dead_letters.id < $3::uuid ${ofKind}
    order by dead_letters.workspace_id desc, dead_letters.state desc, ${order} dead_letters.id desc
    limit 2 * $4::integer
  ) as page
  join kept_dead_letters as letters on letters.workspace_id = page.workspace_id and letters.id = page.id
  order by letters.id desc
  limit $4::integer`;

const selectClosedStatement = closedStatement('', '');
const selectClosedOfKindStatement = closedStatement(`and ${KIND} = $5::text`, `${KIND} desc,`);

/** Which list of those that do not wait, and which page of it. */
interface ClosedPage {
  state: 'replaying' | 'discarded';
  /** Only those of this kind. */
  kind?: string | undefined;
  before?: string | undefined;
  limit: number;
}

/** A page of what is being replayed or was discarded in these workspaces, the one accepted last first. */
export async function selectClosed(
  pool: Pool,
  workspaceIds: string[],
  { state, kind, before = MAX_UUID, limit }: ClosedPage,
): Promise<ListedLetter[]> {
  const isAny = kind === undefined;
  const letters = await forEachWorkspace(
    pool,
    { given: workspaceIds, workspaceOf: (id) => id },
    async (some) => {
      const { rows } = await pool.query<ListedLetter>({
        name: isAny ? 'select-closed-dead-letters' : 'select-closed-of-kind',
        text: isAny ? selectClosedStatement : selectClosedOfKindStatement,
        values: [some, state, before, limit, ...(isAny ? [] : [storable(kind)])],
      });
      return rows;
    },
  );
  return letters.sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, limit);
}
