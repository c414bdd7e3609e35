import type { Json } from '../profile/json.ts';
import type { AuditEntry } from './audit.ts';
import type { Connection, Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/**
 * `waiting`: needs an operator. `replaying`: enqueued again and not applied yet. `replayed`: applied.
 * `discarded`: an operator has given it up.
 */
export type DeadLetterState = 'waiting' | 'replaying' | 'replayed' | 'discarded';

/** An accepted object that could not be applied, with the reason. */
export interface DeadLetter {
  /** Id of the object, a UUIDv7, if it has one. */
  id: string;
  workspaceId: string;
  /** The `X-Request-Id` of the request that contained the object. */
  requestId: string;
  kind: string;
  /** Usually an accepted object. Any JSON if the object violated its contract. */
  object: Json;
  reason: string;
  state: DeadLetterState;
  /** Number of times that it was claimed for a replay. */
  replays: number;
  failedAt: Date;
}

/**
 * Returns the select list of a `DeadLetter`. Statements read the view kept_dead_letters, which hides dead
 * letters of deleted users before they are erased.
 */
const columnsWith = (object: string) => `
  letters.id, letters.workspace_id as "workspaceId", letters.request_id as "requestId",
  letters.kind, ${object} as object, letters.reason, letters.state, letters.replays, letters.failed_at as "failedAt"`;
const deadLetterColumns = columnsWith('letters.object');

/** Id of a dead letter, and its workspace. */
export interface DeadLetterKey {
  id: string;
  workspaceId: string;
}

/**
 * Reads by primary key. On a distributed Postgres, uses an index of every shard, because callers may know
 * only the id.
 */
const locateLettersStatement = `
select dead_letters.id, dead_letters.workspace_id as "workspaceId"
  from dead_letters
 where dead_letters.id = any($1::uuid[])`;

/** Returns the workspaces of dead letters. Unknown ids are omitted. */
export async function locateDeadLetters(
  database: Pick<Pool, 'query'>,
  ids: readonly string[],
): Promise<DeadLetterKey[]> {
  if (ids.length === 0) return [];
  const { rows } = await database.query<DeadLetterKey>({
    name: 'locate-letters',
    text: locateLettersStatement,
    values: [ids],
  });
  return rows;
}

/**
 * SQL for the dead letters with the keys in $1 and $2, excluding those of deleted users. On a single Postgres
 * they are found by id alone, which is the primary key: no index supports this comparison of workspaces.
 */
export const deadLettersTable = `unnest($1::uuid[], $2::uuid[]) as given (workspace_id, id)
    join kept_dead_letters as letters on letters.workspace_id is not distinct from given.workspace_id and letters.id = given.id`;

/** Returns the parameters $1 and $2. */
export const deadLetterValues = (keys: readonly DeadLetterKey[]) => [
  keys.map(({ workspaceId }) => workspaceId),
  keys.map(({ id }) => id),
];

/** Sends a statement on dead letters; once for each workspace on a distributed Postgres. */
export function forDeadLetters<Row>(
  database: Pool | Connection,
  keys: readonly DeadLetterKey[],
  send: (some: readonly DeadLetterKey[]) => Promise<Row[]>,
): Promise<Row[]> {
  return forEachWorkspace(database, { given: keys, workspaceOf: ({ workspaceId }) => workspaceId }, send);
}

// A concurrent claim waits for the row and then finds that it is no longer waiting. Locks in id order.
const claimWaitingForReplayStatement = withCitusForm(`
with waiting as (
  select letters.workspace_id, letters.id
    from ${deadLettersTable}
   where letters.id = any($2::uuid[]) and letters.state = 'waiting'
   order by letters.id
     for update of letters
)
update dead_letters
   set state = 'replaying', replays = dead_letters.replays + 1
  from waiting
 where dead_letters.workspace_id is not distinct from waiting.workspace_id and dead_letters.id = waiting.id
returning dead_letters.id, dead_letters.workspace_id as "workspaceId"`);

/**
 * Claims those of the dead letters that are waiting and increments their replay number.
 *
 * @returns the claimed keys
 */
export async function claimWaitingForReplay(
  tx: Pool | Connection,
  ids: readonly string[],
): Promise<DeadLetterKey[]> {
  return forDeadLetters(tx, await locateDeadLetters(tx, ids), async (keys) => {
    const { rows } = await tx.query<DeadLetterKey>({
      name: 'claim-waiting-for-replay',
      text: claimWaitingForReplayStatement,
      values: deadLetterValues(keys),
    });
    return rows;
  });
}

/** Returns the audit entries of an action on dead letters. */
export function deadLettersAudited(
  action: 'dead_letters.replay' | 'dead_letters.discard' | 'dead_letters.mend',
  letters: readonly DeadLetterKey[],
): AuditEntry[] {
  return letters.map(({ id, workspaceId }) => ({
    action,
    subject: { kind: 'dead_letter', id },
    workspaceId,
  }));
}

// Locks in id order, as every statement on dead letters does. Reads the view, which excludes dead letters of
// deleted users.
const markReplayedStatement = withCitusForm(`
with applied as (
  select letters.workspace_id, letters.id from ${deadLettersTable} order by letters.id for update of letters
)
update dead_letters
   set state = 'replayed', replayed_at = now()
  from applied
 where dead_letters.workspace_id is not distinct from applied.workspace_id and dead_letters.id = applied.id
returning dead_letters.id`);

/**
 * Marks dead letters as replayed in the transaction that applies their objects.
 *
 * @returns the ids that still exist; a delete may have removed others in the meantime
 */
export async function markReplayed(
  connection: Connection,
  keys: readonly DeadLetterKey[],
): Promise<Set<string>> {
  if (keys.length === 0) return new Set();
  const { rows } = await connection.query<{ id: string }>({
    name: 'mark-replayed',
    text: markReplayedStatement,
    values: deadLetterValues(keys),
  });
  return new Set(rows.map(({ id }) => id));
}

/** Reads by the index on workspace and request. */
const selectByRequestStatement = withCitusForm(`
select ${deadLetterColumns}
  from kept_dead_letters as letters
 where letters.workspace_id = $1::uuid and letters.request_id = $2::text
 order by letters.id`);

/** Returns the dead letters of a request, in the order in which their objects were accepted. */
export async function selectByRequest(
  pool: Pool,
  workspaceId: string,
  requestId: string,
): Promise<DeadLetter[]> {
  const { rows } = await pool.query<DeadLetter>({
    name: 'select-dead-letters-by-request',
    text: selectByRequestStatement,
    values: [workspaceId, requestId],
  });
  return rows;
}

/** Reads by the index on workspace and request. */
const countByRequestStatement = `
  select given.request_id as "requestId", counted.objects
  from unnest($2::text[]) as given (request_id)
  cross join lateral (
    select count(*)::integer as objects
    from dead_letters
    where dead_letters.workspace_id = $1::uuid and dead_letters.request_id = given.request_id
      and dead_letters.state in ('waiting', 'discarded')
  ) as counted
  where counted.objects > 0`;

/** Returns the number of failed objects of each request that has any. */
export async function countFailedByRequest(
  pool: Pool,
  workspaceId: string,
  requestIds: readonly string[],
): Promise<Map<string, number>> {
  const { rows } = await pool.query<{ requestId: string; objects: number }>({
    name: 'count-failed-by-request',
    text: countByRequestStatement,
    values: [workspaceId, requestIds],
  });
  return new Map(rows.map(({ requestId, objects }) => [requestId, objects]));
}

/** Postgres stores the length before the value, so a value that is too long is not decompressed. */
const selectDeadLettersStatement = withCitusForm(`
select ${columnsWith(`case when octet_length(letters.object::text) <= $3::integer then letters.object
    else to_json('more than ' || $3::integer || ' bytes') end`)}
  from ${deadLettersTable}
 order by letters.id`);

/** Larger than any object. */
export const ANY_BYTES = 2 ** 31 - 1;

/**
 * Returns the dead letters with these ids, in the order in which their objects were accepted.
 *
 * @param maxBytes limit for the JSON of an object; a larger object is replaced by a message
 */
export async function selectDeadLetters(
  database: Pool | Connection,
  ids: readonly string[],
  maxBytes = ANY_BYTES,
): Promise<DeadLetter[]> {
  return selectLocatedDeadLetters(database, await locateDeadLetters(database, ids), maxBytes);
}

/** Same as `selectDeadLetters`, for callers that know the workspaces. */
export async function selectLocatedDeadLetters(
  database: Pool | Connection,
  keys: readonly DeadLetterKey[],
  maxBytes = ANY_BYTES,
): Promise<DeadLetter[]> {
  if (keys.length === 0) return [];
  const letters = await forDeadLetters(database, keys, async (some) => {
    const { rows } = await database.query<DeadLetter>({
      name: 'select-dead-letters',
      text: selectDeadLettersStatement,
      values: [...deadLetterValues(some), maxBytes],
    });
    return rows;
  });
  return letters.sort((one, other) => (one.id < other.id ? -1 : 1));
}

// Reads the partial index dead_letters_waiting from its end, which is empty while no dead letter is waiting.
// Reads at most twice the limit, however many dead letters of a deleted user are being erased.
const selectLatestWaitingStatement = `
select dead_letters.id, dead_letters.workspace_id as "workspaceId", dead_letters.replays
  from dead_letters
 where dead_letters.state = 'waiting'
 order by dead_letters.id desc
 limit 2 * $1::integer`;

/** Reads by primary key. */
const selectKeptStatement = withCitusForm(`select letters.id from ${deadLettersTable}`);

/** Returns up to `limit` waiting dead letters, most recently accepted first. */
export async function selectLatestWaiting(
  pool: Pool,
  limit: number,
): Promise<{ id: string; replays: number }[]> {
  const { rows: latest } = await pool.query<DeadLetterKey & { replays: number }>({
    name: 'select-latest-waiting',
    text: selectLatestWaitingStatement,
    values: [limit],
  });
  if (latest.length === 0) return [];
  const rows = await forDeadLetters(pool, latest, async (keys) => {
    const selected = await pool.query<{ id: string }>({
      name: 'select-kept-letters',
      text: selectKeptStatement,
      values: deadLetterValues(keys),
    });
    return selected.rows;
  });
  const kept = new Set(rows.map(({ id }) => id));
  return latest
    .filter(({ id }) => kept.has(id))
    .slice(0, limit)
    .map(({ id, replays }) => ({ id, replays }));
}

/** Counts by the index dead_letters_waiting, up to the limit. */
const countWaitingStatement = `
  select count(*)::integer as count,
    (
      select first.failed_at from dead_letters as first
      where first.state = 'waiting'
      order by first.id
      limit 1
    ) as since
  from (select 1 from dead_letters where dead_letters.state = 'waiting' limit $1::integer) as waiting`;

/** Dead letters of the installation that are waiting. */
interface WaitingDeadLetters {
  /** Up to the limit. */
  count: number;
  /** Time at which the one with the earliest accepted object failed; null without waiting dead letters. */
  since: Date | null;
}

/** Counts the dead letters of the installation that wait, up to `limit`. */
export async function countWaiting(pool: Pick<Pool, 'query'>, limit: number): Promise<WaitingDeadLetters> {
  const { rows } = await pool.query<WaitingDeadLetters>({
    name: 'count-waiting-dead-letters',
    text: countWaitingStatement,
    values: [limit],
  });
  return rows[0]!;
}

const countByWorkspaceStatement = `
  select waiting.workspace_id as "workspaceId", count(*)::integer as count
  from (
    select dead_letters.workspace_id from dead_letters
    where dead_letters.state = 'waiting'
    order by dead_letters.id desc
    limit $1::integer
  ) as waiting
  group by waiting.workspace_id`;

/** Waiting dead letters by workspace. */
export interface WaitingByWorkspace {
  counts: { workspaceId: string; count: number }[];
  /** Whether there may be more than were read. */
  isMore: boolean;
}

/** Counts the latest `limit` waiting dead letters of the installation by workspace. */
export async function countWaitingByWorkspace(
  pool: Pick<Pool, 'query'>,
  limit: number,
): Promise<WaitingByWorkspace> {
  const { rows } = await pool.query<WaitingByWorkspace['counts'][0]>({
    name: 'count-waiting-dead-letters-by-workspace',
    text: countByWorkspaceStatement,
    values: [limit],
  });
  return { counts: rows, isMore: rows.reduce((sum, { count }) => sum + count, 0) >= limit };
}
