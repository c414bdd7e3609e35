import { type Identifier, toProfileId } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import type { AuditEntry } from './audit.ts';
import type { Connection, Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/**
 * `waiting`: it needs a person. `replaying`: it was handed to the workers again and has not been applied yet.
 * `replayed`: it has taken effect. `discarded`: a person has given it up.
 */
export type DeadLetterState = 'waiting' | 'replaying' | 'replayed' | 'discarded';

/** An accepted object that could not be applied, and why. */
export interface DeadLetter {
  /** The object's own id, a UUIDv7, where it has one. */
  id: string;
  workspaceId: string;
  /** The `X-Request-Id` of the request that carried the object. */
  requestId: string;
  kind: string;
  /** An accepted object as a rule; anything, where the object broke its contract. */
  object: Json;
  reason: string;
  state: DeadLetterState;
  /** How often it was claimed for a replay. */
  replays: number;
  failedAt: Date;
}

/**
 * The columns of a `DeadLetter`, for statements that return one. They read the view kept_dead_letters: what a delete has
 * taken away is there no more, though it is erased a little later.
 */
const columnsWith = (object: string) => `
  letters.id, letters.workspace_id as "workspaceId", letters.request_id as "requestId",
  letters.kind, ${object} as object, letters.reason, letters.state, letters.replays, letters.failed_at as "failedAt"`;
const deadLetterColumns = columnsWith('letters.object');

/**
 * An identifier as one text that Postgres can store and make itself: the kind's letter, and the value. An alias is its
 * label's length in bytes, its label and its name. A service id is the profile's UUID.
 */
export function identifierText(identifier: Identifier): string {
  if ('external_id' in identifier) return `x:${identifier.external_id}`;
  if ('user_alias' in identifier) {
    const { alias_label, alias_name } = identifier.user_alias;
    return `a:${Buffer.byteLength(alias_label)}:${alias_label}${alias_name}`;
  }
  if ('service_id' in identifier) return `s:${toProfileId(identifier.service_id)}`;
  return 'email' in identifier ? `e:${identifier.email}` : `p:${identifier.phone}`;
}

/** A dead letter by its id, and where it belongs. */
export interface LetterKey {
  id: string;
  workspaceId: string;
}

/** By primary key; of a distributed table by an index of every shard, as who has an id may know no workspace. */
const locateLettersStatement = `
select dead_letters.id, dead_letters.workspace_id as "workspaceId"
  from dead_letters
 where dead_letters.id = any($1::uuid[])`;

/** Whose dead letters these are; one that is not there is missing. */
export async function locateLetters(
  database: Pick<Pool, 'query'>,
  ids: readonly string[],
): Promise<LetterKey[]> {
  if (ids.length === 0) return [];
  const { rows } = await database.query<LetterKey>({
    name: 'locate-letters',
    text: locateLettersStatement,
    values: [ids],
  });
  return rows;
}

/**
 * The dead letters of these keys but for what a delete has taken away, from the parameters $1 and $2. On one Postgres by their
 * ids alone, which are the primary key: no index serves this comparison of workspaces.
 */
export const lettersTable = `unnest($1::uuid[], $2::uuid[]) as given (workspace_id, id)
    join kept_dead_letters as letters on letters.workspace_id is not distinct from given.workspace_id and letters.id = given.id`;

/** The parameters $1 and $2. */
export const letterValues = (keys: readonly LetterKey[]) => [
  keys.map(({ workspaceId }) => workspaceId),
  keys.map(({ id }) => id),
];

/** Sends a statement about letters, where they lie apart once for each workspace. */
export function forLetters<Row>(
  database: Pool | Connection,
  keys: readonly LetterKey[],
  send: (some: readonly LetterKey[]) => Promise<Row[]>,
): Promise<Row[]> {
  return forEachWorkspace(database, { given: keys, workspaceOf: ({ workspaceId }) => workspaceId }, send);
}

// A second claim at the same time waits for the row, then no longer finds it waiting. Locks in id order.
const claimWaitingForReplayStatement = `
with waiting as (
  select letters.workspace_id, letters.id
    from ${lettersTable}
   where letters.id = any($2::uuid[]) and letters.state = 'waiting'
   order by letters.id
     for update of letters
)
update dead_letters
   set state = 'replaying', replays = dead_letters.replays + 1
  from waiting
 where dead_letters.workspace_id is not distinct from waiting.workspace_id and dead_letters.id = waiting.id
returning dead_letters.id, dead_letters.workspace_id as "workspaceId"`;

/** Claims those of the dead letters that wait: each gets the number of its next replay. @returns those */
export async function claimWaitingForReplay(
  tx: Pool | Connection,
  ids: readonly string[],
): Promise<LetterKey[]> {
  return forLetters(tx, await locateLetters(tx, ids), async (keys) => {
    const { rows } = await tx.query<LetterKey>({
      name: 'claim-waiting-for-replay',
      text: claimWaitingForReplayStatement,
      values: letterValues(keys),
    });
    return rows;
  });
}

/** What the audit says of dead letters with which the same was done. */
export function lettersAudited(
  action: 'dead_letters.replay' | 'dead_letters.discard' | 'dead_letters.mend',
  letters: readonly LetterKey[],
): AuditEntry[] {
  return letters.map(({ id, workspaceId }) => ({
    action,
    subject: { kind: 'dead_letter', id },
    workspaceId,
  }));
}

// Locks in id order, as every statement on dead letters does. Of the view: whatever a delete has taken away is not there.
const markReplayedStatement = `
with applied as (
  select letters.workspace_id, letters.id from ${lettersTable} order by letters.id for update of letters
)
update dead_letters
   set state = 'replayed', replayed_at = now()
  from applied
 where dead_letters.workspace_id is not distinct from applied.workspace_id and dead_letters.id = applied.id
returning dead_letters.id`;

/**
 * Settles the dead letters whose objects have now taken effect, in the transaction that applies their replay.
 *
 * @returns those that were there: a delete may have taken others away meanwhile
 */
export async function markReplayed(connection: Connection, keys: readonly LetterKey[]): Promise<Set<string>> {
  if (keys.length === 0) return new Set();
  const { rows } = await connection.query<{ id: string }>({
    name: 'mark-replayed',
    text: markReplayedStatement,
    values: letterValues(keys),
  });
  return new Set(rows.map(({ id }) => id));
}

/** By the index on workspace and request. */
const selectByRequestStatement = `
select ${deadLetterColumns}
  from kept_dead_letters as letters
 where letters.workspace_id = $1::uuid and letters.request_id = $2::text
 order by letters.id`;

/** The objects of a request that could not be applied at first, in the order in which they were accepted. */
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

/** How long a value is stands in front of it: what is too large is not unpacked. */
const selectDeadLettersStatement = `
select ${columnsWith(`case when octet_length(letters.object::text) <= $3::integer then letters.object
    else to_json('more than ' || $3::integer || ' bytes') end`)}
  from ${lettersTable}
 order by letters.id`;

/** No object has as many. */
export const ANY_BYTES = 2 ** 31 - 1;

/**
 * The dead letters with these ids, in the order in which their objects were accepted.
 *
 * @param most bytes of the JSON of an object; of a larger one a text comes that says so
 */
export async function selectDeadLetters(
  database: Pool | Connection,
  ids: readonly string[],
  most = ANY_BYTES,
): Promise<DeadLetter[]> {
  return selectLetters(database, await locateLetters(database, ids), most);
}

/** The same for who knows whose they are. */
export async function selectLetters(
  database: Pool | Connection,
  keys: readonly LetterKey[],
  most = ANY_BYTES,
): Promise<DeadLetter[]> {
  if (keys.length === 0) return [];
  const letters = await forLetters(database, keys, async (some) => {
    const { rows } = await database.query<DeadLetter>({
      name: 'select-dead-letters',
      text: selectDeadLettersStatement,
      values: [...letterValues(some), most],
    });
    return rows;
  });
  return letters.sort((one, other) => (one.id < other.id ? -1 : 1));
}

// Reads the partial index dead_letters_waiting from its end: nothing to read while no dead letter waits. However many of
// a deleted user are being erased just now, it goes no further than twice as far as it has to.
const selectLatestWaitingStatement = `
select dead_letters.id, dead_letters.workspace_id as "workspaceId", dead_letters.replays
  from dead_letters
 where dead_letters.state = 'waiting'
 order by dead_letters.id desc
 limit 2 * $1::integer`;

/** By primary key. */
const selectKeptStatement = `select letters.id from ${lettersTable}`;

/** The dead letters that wait, the latest accepted first, `limit` at most. */
export async function selectLatestWaiting(
  pool: Pool,
  limit: number,
): Promise<{ id: string; replays: number }[]> {
  const { rows: latest } = await pool.query<LetterKey & { replays: number }>({
    name: 'select-latest-waiting',
    text: selectLatestWaitingStatement,
    values: [limit],
  });
  if (latest.length === 0) return [];
  const rows = await forLetters(pool, latest, async (keys) => {
    const found = await pool.query<{ id: string }>({
      name: 'select-kept-letters',
      text: selectKeptStatement,
      values: letterValues(keys),
    });
    return found.rows;
  });
  const kept = new Set(rows.map(({ id }) => id));
  return latest
    .filter(({ id }) => kept.has(id))
    .slice(0, limit)
    .map(({ id, replays }) => ({ id, replays }));
}

/** By the index dead_letters_waiting, as far as its bound. */
const countWaitingStatement = `
  select count(*)::integer as count
  from (select 1 from dead_letters where dead_letters.state = 'waiting' limit $1::integer) as waiting`;

/** How many dead letters of the installation wait for a person, up to `most`. */
export async function countWaiting(pool: Pool, most: number): Promise<number> {
  const { rows } = await pool.query<{ count: number }>({
    name: 'count-waiting-dead-letters',
    text: countWaitingStatement,
    values: [most],
  });
  return rows[0]!.count;
}
