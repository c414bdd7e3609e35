import { MAX_UUID, NIL_UUID } from '../platform/ids.ts';
import { gramsOf, gramsOfWords, isSearchable, searchTextOf } from '../profile/search-text.ts';
import type { Connection, Database, Pool } from './database.ts';
import { leasesOf } from './leases.ts';
import { withCitusForm } from './one-workspace.ts';
import { type FoundUser, LAST_CHARACTER } from './profile-search.ts';
import { inTransaction } from './transactions.ts';

/** The index of the search by a part of a name or identifier: filled by upkeep, read by the console. */

/** Maximum number of aliases of a user in the index. */
const MAX_ALIASES = 10;

/** Profiles that one statement of a pass compares with the index. */
const PAGE = 1000;

/** Users that one transaction locks and indexes: batches that change them wait for it. */
const LOCKED = 100;

/** Milliseconds of a turn. A turn ends after the page in which it has taken so long. */
const TURN_MS = 100;

/** Minimum milliseconds between two turns, for all workers together. */
const MIN_PAUSE_MS = 5000;

/**
 * Turns take at most one part in so many of the time of one connection: 1 %. With 2 %, they took 3 % of the processor time of
 * writes on a busy machine.
 */
const SHARE = 100;

/** Milliseconds for which a turn has the lease. */
const LEASE_MS = 60_000;

/** Leases of the pass. They are longer than a turn, so that they are not extended. */
const passLeases = leasesOf({
  ...{ table: 'user_search_pass', until: 'leased_until', maxMilliseconds: 10 * LEASE_MS },
});

/** Updates one row. */
const takeTurnStatement = `
  update user_search_pass set ${passLeases.take('$1')}
  where ${passLeases.isFree}
  returning user_search_pass.workspace_id as "workspaceId", user_search_pass.profile_id as "profileId",
    ${passLeases.lease} as lease`;

/** Updates one row. */
const endTurnStatement = `
  update user_search_pass set workspace_id = $2::uuid, profile_id = $3::uuid, passes = user_search_pass.passes + $4::integer,
    ${passLeases.release('$5')}
  where ${passLeases.isHeld('$1')}`;

/** Takes the turn of the pass for some milliseconds. @returns the position; undefined if the turn or the pause has not ended */
export async function takeTurn(
  pool: Pool,
  milliseconds: number,
): Promise<(Position & { lease: string }) | undefined> {
  const values = [milliseconds];
  const { rows } = await pool.query<Position & { lease: string }>({
    ...{ name: 'take-search-turn', text: takeTurnStatement, values },
  });
  return rows[0];
}

/**
 * Ends a turn at a position. The next turn begins after `pause` milliseconds.
 *
 * @param ended whether the turn has reached the end of the pass
 * @returns false if another worker has the turn
 */
export async function endTurn(
  pool: Pool,
  lease: string,
  { position, ended, pause }: { position: Position; ended: boolean; pause: number },
): Promise<boolean> {
  const values = [lease, position.workspaceId, position.profileId, ended ? 1 : 0, pause];
  const { rowCount } = await pool.query({ name: 'end-search-turn', text: endTurnStatement, values });
  return rowCount === 1;
}

/** Reads by primary key. */
const nextWorkspaceStatement = `
  select workspaces.id
  from workspaces
  where workspaces.id > $1::uuid
  order by workspaces.id
  limit 1`;

/**
 * Reads a page by the primary keys of profiles and user_search, and by user_aliases_profile; takes no lock. Returns
 * the users whose text differs from the index, or one row without a user.
 */
const comparePageStatement = `
  with page as materialized (
    select given.id, given.external_id, given.email, given.phone, given.first_name, given.last_name, names.aliases,
      hashtextextended(concat_ws(E'\\n', given.external_id, given.email, given.phone, given.first_name, given.last_name,
        array_to_string(names.aliases, E'\\n')), 0) as source
    from (
      select profiles.*
      from profiles
      where profiles.workspace_id = $1::uuid and profiles.id > $2::uuid
      order by profiles.workspace_id, profiles.id
      limit ${PAGE}
    ) as given
    cross join lateral (
      select array(
        select user_aliases.alias_name
        from user_aliases
        where user_aliases.workspace_id = $1::uuid and user_aliases.profile_id = given.id
        order by user_aliases.alias_label
        limit ${MAX_ALIASES}
      ) as aliases
      -- Keeps the aliases from being read once for each use.
      offset 0
    ) as names
  ), bounds as (
    select count(*)::integer as size, max(page.id::text) as last from page
  )
  select bounds.size, bounds.last, page.id, page.external_id as "externalId", page.email, page.phone,
    page.first_name as "firstName", page.last_name as "lastName", page.aliases, page.source::text as source
  from bounds
  left join page on (
    select user_search.source
    from user_search
    where user_search.workspace_id = $1::uuid and user_search.profile_id = page.id
    limit 1
  ) is distinct from page.source`;

/** Deletes by primary key, in the range of a page: users that were deleted by a process of an earlier release. */
const deleteMissingStatement = `
  delete from user_search
  where user_search.workspace_id = $1::uuid and user_search.profile_id > $2::uuid
    and user_search.profile_id <= $3::uuid
    and (
      select profiles.id
      from profiles
      where profiles.workspace_id = $1::uuid and profiles.id = user_search.profile_id
      limit 1) is null`;

/**
 * Locks by primary key. Users whom a batch has locked or updated are omitted until the next pass: a wait for them could
 * end in a deadlock with a batch that locks several users. A lock for key share would wait in spite of `skip locked`: it
 * is allowed during an update, and then also locks the updated row, for which Postgres always waits.
 */
const lockPresentStatement = `
  select profiles.id
  from profiles
  where profiles.workspace_id = $1::uuid and profiles.id = any($2::uuid[])
  order by profiles.workspace_id, profiles.id
  for no key update of profiles skip locked`;

/** Upserts by primary key, in its order. */
const indexUsersStatement = withCitusForm(`
  insert into user_search (workspace_id, profile_id, text, grams, source)
  select given."workspaceId", given.id, given.text, given.grams, given.source
  from jsonb_to_recordset($1::jsonb) as given ("workspaceId" uuid, id uuid, text text, grams integer[], source bigint)
  order by given."workspaceId", given.id
  on conflict (workspace_id, profile_id) do update set
    text = excluded.text, grams = excluded.grams, source = excluded.source`);

interface ComparedUser {
  /** Number of profiles of the page, and the id of the last profile. */
  size: number;
  last: string | null;
  /** Null if the index has the present text of each user of the page. */
  id: string | null;
  externalId: string | null;
  email: string | null;
  phone: string | null;
  firstName: string | null;
  lastName: string | null;
  aliases: string[];
  source: string;
}

interface Position {
  workspaceId: string;
  profileId: string;
}

/**
 * Continues the pass over all profiles for a turn: users whose names or identifiers have changed are indexed again. It
 * may run in several workers; one of them gets the turn.
 *
 * @returns whether the pass has reached its end; undefined if another worker has the turn, or the pause after the previous
 * turn has not ended
 */
export async function indexUsers(
  pool: Pool,
  { turn = TURN_MS }: { turn?: number } = {},
): Promise<{ ended: boolean } | undefined> {
  const turnTaken = await takeTurn(pool, LEASE_MS);
  if (!turnTaken) return undefined;
  let position: Position = turnTaken;
  const from = performance.now();
  let ended = false;
  let isHeld = false;
  try {
    while (!ended && performance.now() - from < turn) {
      const next: Position | undefined =
        position.workspaceId === NIL_UUID ? undefined : await indexPage(pool, position);
      position = next ?? (await nextWorkspace(pool, position.workspaceId));
      ended = position.workspaceId === NIL_UUID;
    }
  } finally {
    const pause = Math.ceil(Math.max(MIN_PAUSE_MS, (performance.now() - from) * (SHARE - 1)));
    isHeld = await endTurn(pool, turnTaken.lease, { position, ended, pause });
  }
  return isHeld ? { ended } : undefined;
}

/** Returns the start of the workspace after another; of no workspace after the last. */
async function nextWorkspace(pool: Pool, workspaceId: string): Promise<Position> {
  const { rows } = await pool.query<{ id: string }>({
    name: 'next-searched-workspace',
    text: nextWorkspaceStatement,
    values: [workspaceId],
  });
  return { workspaceId: rows[0]?.id ?? NIL_UUID, profileId: NIL_UUID };
}

/** Indexes the users of a page. @returns the position after it; undefined after the last page of a workspace */
async function indexPage(pool: Pool, { workspaceId, profileId }: Position): Promise<Position | undefined> {
  const { rows } = await pool.query<ComparedUser>({
    name: 'compare-search-page',
    text: comparePageStatement,
    values: [workspaceId, profileId],
  });
  const { size, last } = rows[0]!;
  const isLast = size < PAGE;
  const changed = rows.filter(({ id }) => id !== null).map((user) => toIndexed(workspaceId, user));
  await pool.query({
    name: 'delete-missing-searched',
    text: deleteMissingStatement,
    values: [workspaceId, profileId, isLast ? MAX_UUID : last],
  });
  for (let at = 0; at < changed.length; at += LOCKED)
    await indexChanged(pool, changed.slice(at, at + LOCKED));
  return isLast || last === null ? undefined : { workspaceId, profileId: last };
}

/** Indexes users of one workspace who are not in use by a batch. */
function indexChanged(pool: Pool, changed: readonly IndexedUser[]): Promise<void> {
  return inTransaction(pool, async (tx) => {
    const present = await tx.query<{ id: string }>({
      name: 'lock-searched',
      text: lockPresentStatement,
      values: [changed[0]!.workspaceId, changed.map(({ id }) => id)],
    });
    const kept = new Set(present.rows.map(({ id }) => id));
    const values = [JSON.stringify(changed.filter(({ id }) => kept.has(id)))];
    if (kept.size > 0) await tx.query({ name: 'index-users', text: indexUsersStatement, values });
  });
}

interface IndexedUser {
  workspaceId: string;
  id: string;
  text: string;
  grams: number[];
  source: string;
}

function toIndexed(workspaceId: string, user: ComparedUser): IndexedUser {
  const name = [user.firstName, user.lastName].filter(Boolean).join(' ');
  const fields = [name, user.email, user.phone, user.externalId, ...user.aliases];
  const text = searchTextOf(fields.filter((field): field is string => Boolean(field)));
  return { workspaceId, id: user.id!, text, grams: gramsOf(workspaceId, text), source: user.source };
}

/**
 * Whether the index has been filled once. Until then, a search by parts does not find all users. Users whom a batch had
 * locked in that pass follow in the next.
 */
export async function isSearchFilled({ prisma }: Pick<Database, 'prisma'>): Promise<boolean> {
  const { passes } = await prisma.userSearchPass.findFirstOrThrow({ select: { passes: true } });
  return passes > 0;
}

/** Conditions on users besides the text. An absent condition does not filter. */
export interface UserFilters {
  hasEmail?: boolean;
  hasPhone?: boolean;
  /** Global email state. */
  email?: 'subscribed' | 'unsubscribed' | 'opted_in';
  createdAfter?: Date;
}

/** A search by parts in one workspace. */
interface PartSearch {
  workspaceId: string;
  /** Words that the text of the user contains. */
  words: readonly string[];
  filters: UserFilters;
}

/** Columns of a found user. */
const columns = `
    profiles.workspace_id as "workspaceId", profiles.id, profiles.external_id as "externalId", profiles.email,
    profiles.phone, profiles.first_name as "firstName", profiles.last_name as "lastName",
    profiles.created_at as "createdAt", profiles.updated_at as "updatedAt"`;

/** Returns SQL for the filters, whose parameters are $2 to $5. */
const filtered = (workspaceId: string) => `
      ($2::boolean is not true or profiles.email is not null)
      and ($3::boolean is not true or profiles.phone is not null)
      and ($4::timestamptz is null or profiles.created_at >= $4::timestamptz)
      and ($5::text is null or $5::text = coalesce(
        case when profiles.email is null then profiles.email_subscribe
          else (
            select email_addresses.state
            from email_addresses
            where email_addresses.workspace_id = ${workspaceId} and email_addresses.email = profiles.email
            limit 1) end,
        'subscribed'))`;

const filterValues = ({ hasEmail, hasPhone, createdAfter, email }: UserFilters) => [
  ...[hasEmail ?? null, hasPhone ?? null, createdAfter?.toISOString() ?? null, email ?? null],
];

/** Returns patterns for `like all`, which match a text with each word; null without words. */
const patternsOf = (words: readonly string[]) =>
  words.length === 0 ? null : words.map((word) => `%${word.replace(/[\\%_]/g, '\\$&')}%`);

/** Maximum number of users that a search counts. If there are more, it returns one more. */
export const MAX_FOUND = 1000;

/** Maximum milliseconds of one search. */
const SEARCH_MS = 2000;

/** A search took longer than SEARCH_MS. */
export class SearchTooBroad extends Error {
  override name = 'SearchTooBroad';
}

/** Runs reads with the time limit of a search. */
async function inTime<T>(pool: Pool, read: (tx: Connection) => Promise<T>): Promise<T> {
  try {
    return await inTransaction(pool, async (tx) => {
      await tx.query(`set local statement_timeout = ${SEARCH_MS}`);
      return read(tx);
    });
  } catch (error) {
    throw (error as { code?: string }).code === '57014' ? new SearchTooBroad() : error;
  }
}

/**
 * Reads by the index user_search_grams, by profiles_external_id_bytes and by primary keys; takes no lock. The workspace
 * is compared as bytes, so that the primary key of user_search is not used instead: the trigrams include the workspace.
 * External ids are also found by their start before they are indexed.
 */
const searchPartsStatement = withCitusForm(`
  select ${columns}
  from unnest($1::uuid[]) as wanted (workspace_id)
  cross join lateral (
    (
      select user_search.profile_id as id
      from user_search
      where uuid_send(user_search.workspace_id) = uuid_send(wanted.workspace_id)
        and user_search.grams operator(pg_catalog.@>) $6::integer[] and user_search.text like all ($7::text[])
    )
    union all
    (
      select named.id
      from (
        select profiles.id
        from profiles
        where uuid_send(profiles.workspace_id) = uuid_send(wanted.workspace_id)
          and profiles.external_id collate "C" >= $8::text and profiles.external_id collate "C" <= $9::text
        order by profiles.external_id collate "C"
        limit ${MAX_FOUND} + 1
      ) as named
      where not coalesce((
        select user_search.text like all ($7::text[])
        from user_search
        where user_search.workspace_id = wanted.workspace_id and user_search.profile_id = named.id
        limit 1), false)
    )
  ) as hits
  cross join lateral (
    select * from profiles
    where profiles.workspace_id = wanted.workspace_id and profiles.id = hits.id
    limit 1
  ) as profiles
  where ${filtered('wanted.workspace_id')}
  limit ${MAX_FOUND} + 1`);

/**
 * Returns users whose names and identifiers contain each word, or whose external id starts with the text, newest first.
 * Returns at most MAX_FOUND + 1 users.
 *
 * @param prefix start of an external id
 * @throws {SearchTooBroad}
 */
export async function searchParts(
  pool: Pool,
  { workspaceId, words, filters, prefix }: PartSearch & { prefix: string },
): Promise<FoundUser[]> {
  const isIndexed = isSearchable(words);
  const values = [
    [workspaceId],
    ...filterValues(filters),
    ...(isIndexed ? [gramsOfWords(workspaceId, words), patternsOf(words)] : [null, null]),
    ...[prefix, prefix + LAST_CHARACTER],
  ];
  const { rows } = await inTime(pool, (tx) =>
    tx.query<FoundUser>({ name: 'search-parts', text: searchPartsStatement, values }),
  );
  return rows.sort((one, other) => (one.id < other.id ? 1 : -1));
}

/** Number of users that one statement of a list looks at. */
const LOOKED = 1000;

/** Milliseconds after which a list sends no further statement. */
const LIST_MS = 120;

/** Reads a page by primary key, and for each of its users by the primary key of user_search; takes no lock. */
const listUsersStatement = `
  select ${columns}
  from (
    select profiles.*
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id < $6::uuid
    order by profiles.workspace_id desc, profiles.id desc
    limit ${LOOKED}
  ) as profiles
  where ${filtered('$1::uuid')}
    and ($7::text[] is null or (
      select user_search.text like all ($7::text[])
      from user_search
      where user_search.workspace_id = $1::uuid and user_search.profile_id = profiles.id
      limit 1))
  order by profiles.workspace_id desc, profiles.id desc
  limit $8::integer`;

/** Reads by primary key. */
const lastLookedStatement = `
  select profiles.id
  from profiles
  where profiles.workspace_id = $1::uuid and profiles.id < $2::uuid
  order by profiles.workspace_id desc, profiles.id desc
  limit 1 offset ${LOOKED - 1}`;

/**
 * Returns users of the workspace, newest first. It looks at users one after the other until there are `limit` users, or
 * for LIST_MS.
 *
 * @param page.before id of the last user of the previous page
 * @returns `looked`: id of the last user that was looked at; absent if there are `limit` users, or no further ones
 * @throws {SearchTooBroad}
 */
export async function listUsers(
  pool: Pool,
  { workspaceId, words, filters }: PartSearch,
  { before = MAX_UUID, limit }: { before?: string | undefined; limit: number },
): Promise<{ users: FoundUser[]; looked?: string }> {
  const from = performance.now();
  const users: FoundUser[] = [];
  for (let looked = before; ; ) {
    const values = [
      ...[workspaceId, ...filterValues(filters), looked, patternsOf(words)],
      limit - users.length,
    ];
    const { rows } = await inTime(pool, (tx) =>
      tx.query<FoundUser>({ name: 'list-users', text: listUsersStatement, values }),
    );
    users.push(...rows);
    if (users.length === limit) return { users };
    const { rows: last } = await pool.query<{ id: string }>({
      name: 'last-looked',
      text: lastLookedStatement,
      values: [workspaceId, looked],
    });
    if (!last[0]) return { users };
    looked = last[0].id;
    if (performance.now() - from > LIST_MS) return { users, looked };
  }
}
