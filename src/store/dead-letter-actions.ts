import { MAX_UUID, NIL_UUID } from '../platform/ids.ts';
import { type Actor, audited } from './audit.ts';
import { type Pool, storable } from './database.ts';
import { KIND, type ListedDeadLetter, listedColumns } from './dead-letter-groups.ts';
import {
  type DeadLetterKey,
  deadLettersAudited,
  deadLettersTable,
  deadLetterValues,
  forDeadLetters,
  locateDeadLetters,
} from './dead-letters.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/**
 * Lists of dead letters across workspaces, for operators. A list first reads keys from the table, and then
 * their dead letters from the view, which excludes those of deleted users. On a distributed Postgres, the
 * view can only be read for one workspace at a time.
 */

/** Filter for dead letters. An absent field matches all. */
interface WantedLetters {
  workspaceId?: string | undefined;
  states?: string[] | undefined;
}

const wanted = `
    ($1::uuid is null or dead_letters.workspace_id = $1)
    and ($2::text[] is null or dead_letters.state = any($2))`;

/** Reads a range of the primary key, or of the id index of every shard. */
const keysStatement = (isNewest: boolean) => `
  select dead_letters.id, dead_letters.workspace_id as "workspaceId"
  from dead_letters
  where ${wanted} and dead_letters.id ${isNewest ? '<' : '>'} $3::uuid
  order by dead_letters.id ${isNewest ? 'desc' : 'asc'}
  limit $4::integer`;

const newestKeysStatement = keysStatement(true);
const oldestKeysStatement = keysStatement(false);

/** Start, direction and size of a page. */
interface KeyPage {
  isNewest: boolean;
  from: string;
  limit: number;
}

async function keysOf(
  pool: Pool,
  { workspaceId, states }: WantedLetters,
  { isNewest, from, limit }: KeyPage,
): Promise<DeadLetterKey[]> {
  const { rows } = await pool.query<DeadLetterKey>({
    name: isNewest ? 'newest-letter-keys' : 'oldest-letter-keys',
    text: isNewest ? newestKeysStatement : oldestKeysStatement,
    values: [workspaceId, states, from, limit],
  });
  return rows;
}

/** Reads by primary key. */
const listLettersStatement = withCitusForm(`select ${listedColumns} from ${deadLettersTable}`);

/** Returns the dead letters in order of their ids. */
async function lettersOf(pool: Pool, keys: DeadLetterKey[]): Promise<ListedDeadLetter[]> {
  const letters = await forDeadLetters(pool, keys, async (some) => {
    const { rows } = await pool.query<ListedDeadLetter>({
      name: 'list-letters',
      text: listLettersStatement,
      values: deadLetterValues(some),
    });
    return rows;
  });
  return letters.sort((one, other) => (one.id < other.id ? -1 : 1));
}

/**
 * Returns a page of dead letters, most recently accepted first. Ids start with the time at which the object
 * was accepted.
 *
 * @param page.before returns only dead letters accepted before this id
 */
export async function listDeadLetters(
  pool: Pool,
  which: WantedLetters,
  { before = MAX_UUID, limit }: { before?: string | undefined; limit: number },
): Promise<ListedDeadLetter[]> {
  const deadLetters: ListedDeadLetter[] = [];
  for (let from = before; deadLetters.length < limit; ) {
    const keys = await keysOf(pool, which, { isNewest: true, from, limit });
    if (keys.length > 0) deadLetters.push(...(await lettersOf(pool, keys)).reverse());
    if (keys.length < limit) break;
    from = keys.at(-1)!.id;
  }
  return deadLetters.slice(0, limit);
}

/**
 * Yields pages of dead letter ids in the order in which their objects were accepted. A page has up to `size`
 * ids and is never empty.
 */
export async function* pagesOfDeadLetters(pool: Pool, which: WantedLetters, size: number) {
  for (let from = NIL_UUID; ; ) {
    const keys = await keysOf(pool, which, { isNewest: false, from, limit: size });
    const ids = keys.length > 0 ? (await lettersOf(pool, keys)).map(({ id }) => id) : [];
    if (ids.length > 0) yield ids;
    if (keys.length < size) return;
    from = keys.at(-1)!.id;
  }
}

/** Reads all matching rows. Operators run it to see the progress of a replay. */
const countLettersStatement = `
  select count(*)::integer as count
  from dead_letters
  where ${wanted}`;

/** Returns the number of dead letters. Includes those of deleted users that are still being erased. */
export async function countDeadLetters(pool: Pool, { workspaceId, states }: WantedLetters): Promise<number> {
  const { rows } = await pool.query<{ count: number }>({
    name: 'count-letters',
    text: countLettersStatement,
    values: [workspaceId, states],
  });
  return rows[0]!.count;
}

/** A dead letter with all its fields. */
export interface WholeDeadLetter extends ListedDeadLetter {
  jobName: string;
  /** Stored JSON; null if it is longer than the limit. */
  object: string | null;
  /** Length of the JSON in bytes. */
  bytes: number;
  replayedAt: Date | null;
  discardedAt: Date | null;
  mendedAt: Date | null;
  mendedBy: string | null;
}

/**
 * Reads by primary key. Postgres stores the length before the value, so a value that is too long is not
 * decompressed.
 */
const readLetterStatement = withCitusForm(`
  select ${listedColumns}, letters.job_name as "jobName",
    octet_length(letters.object::text) as bytes,
    case when octet_length(letters.object::text) <= $3::integer then letters.object::text end as object,
    letters.replayed_at as "replayedAt", letters.discarded_at as "discardedAt",
    letters.mended_at as "mendedAt", letters.mended_by as "mendedBy"
  from ${deadLettersTable}`);

/** Reads a dead letter. @param maxBytes limit for the object's JSON */
export async function readDeadLetter(
  pool: Pool,
  id: string,
  maxBytes: number,
): Promise<WholeDeadLetter | undefined> {
  const keys = await locateDeadLetters(pool, [id]);
  if (keys.length === 0) return undefined;
  const { rows } = await pool.query<WholeDeadLetter>({
    name: 'read-dead-letter',
    text: readLetterStatement,
    values: [...deadLetterValues(keys), maxBytes],
  });
  return rows[0];
}

// Reads the view, which excludes dead letters of deleted users. Locks in id order, as every statement on dead
// letters does.
const discardStatement = withCitusForm(`
with waiting as (
  select letters.workspace_id, letters.id
    from ${deadLettersTable}
   where letters.id = any($2::uuid[]) and letters.state = 'waiting'
   order by letters.id
     for update of letters
)
update dead_letters
   set state = 'discarded', discarded_at = now(), discarded_by = $3, discard_reason = $4
  from waiting
 where dead_letters.workspace_id is not distinct from waiting.workspace_id and dead_letters.id = waiting.id
returning dead_letters.id, dead_letters.workspace_id as "workspaceId"`);

/** Operator and reason, for later readers. */
interface Discard {
  by: string;
  reason: string;
  /** Actor for the audit log. */
  actor: Actor;
}

/**
 * Discards those of the dead letters that are waiting, so that they are no longer replayed. @returns their
 * ids
 */
export async function discardDeadLetters(
  pool: Pool,
  ids: readonly string[],
  { by, reason, actor }: Discard,
): Promise<string[]> {
  return audited(pool, actor, async (tx) => {
    const rows = await forDeadLetters(tx, await locateDeadLetters(tx, ids), async (keys) => {
      const values = [...deadLetterValues(keys), storable(by), storable(reason)];
      return (await tx.query<DeadLetterKey>({ name: 'discard-dead-letters', text: discardStatement, values }))
        .rows;
    });
    const entries = deadLettersAudited('dead_letters.discard', rows);
    return { result: rows.map(({ id }) => id), entries };
  });
}

// Updates by primary key. Keeps the dead letter's earlier names, so that a delete of a user named before or
// after the edit finds it.
const mendStatement = withCitusForm(`
with waiting as (
  select letters.workspace_id, letters.id
    from ${deadLettersTable}
   where letters.id = any($2::uuid[]) and letters.state = 'waiting'
     for update of letters
)
update dead_letters
   set original_object = coalesce(dead_letters.original_object, dead_letters.object), object = $3::json,
       mended_at = now(), mended_by = $4,
       identifiers = array(select distinct names.name from unnest(dead_letters.identifiers || $5::text[]) as names (name))
  from waiting
 where dead_letters.workspace_id is not distinct from waiting.workspace_id and dead_letters.id = waiting.id
returning dead_letters.id, dead_letters.workspace_id as "workspaceId"`);

/** New content of a dead letter's object. */
interface Mended {
  /** JSON text. */
  object: string;
  by: string;
  /** Identifiers that the object names, in the format of `identifierText`. */
  names: string[];
  /** Actor for the audit log. */
  actor: Actor;
}

/**
 * Replaces the object of a waiting dead letter and keeps the original. @returns false if it is not waiting
 */
export async function fixDeadLetter(
  pool: Pool,
  id: string,
  { object, by, names, actor }: Mended,
): Promise<boolean> {
  return audited(pool, actor, async (tx) => {
    const rows = await forDeadLetters(tx, await locateDeadLetters(tx, [id]), async (keys) => {
      const values = [...deadLetterValues(keys), object, storable(by), names.map(storable)];
      return (await tx.query<DeadLetterKey>({ name: 'mend-dead-letter', text: mendStatement, values })).rows;
    });
    return { result: rows.length === 1, entries: deadLettersAudited('dead_letters.mend', rows) };
  });
}

/**
 * Reads the end of each workspace's range in dead_letters_closed, or of a kind's range in
 * dead_letters_closed_kind.
 */
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

const selectClosedStatement = withCitusForm(closedStatement('', ''));
const selectClosedOfKindStatement = withCitusForm(closedStatement(`and ${KIND} = $5::text`, `${KIND} desc,`));

/** List of dead letters that are not waiting, and a page of it. */
interface ClosedPage {
  state: 'replaying' | 'discarded';
  /** Kind to filter by. */
  kind?: string | undefined;
  before?: string | undefined;
  limit: number;
}

/**
 * Returns a page of the dead letters of these workspaces that are being replayed or were discarded, most
 * recently accepted first.
 */
export async function selectClosed(
  pool: Pool,
  workspaceIds: string[],
  { state, kind, before = MAX_UUID, limit }: ClosedPage,
): Promise<ListedDeadLetter[]> {
  const isAny = kind === undefined;
  const letters = await forEachWorkspace(
    pool,
    { given: workspaceIds, workspaceOf: (id) => id },
    async (some) => {
      const { rows } = await pool.query<ListedDeadLetter>({
        name: isAny ? 'select-closed-dead-letters' : 'select-closed-of-kind',
        text: isAny ? selectClosedStatement : selectClosedOfKindStatement,
        values: [some, state, before, limit, ...(isAny ? [] : [storable(kind)])],
      });
      return rows;
    },
  );
  return letters.sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, limit);
}
