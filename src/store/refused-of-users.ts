import { createHash } from 'node:crypto';
import { millisecondsOf } from '../platform/ids.ts';
import { type Identifier, identifierText } from '../profile/identifier.ts';
import { jsonArray, uuidArray } from './arrays.ts';
import type { Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';
import { KEPT_DAYS, type ListedRefusal } from './refused-objects.ts';

/** Maximum number of objects that are kept for an identifier and a day. */
export const MAX_OF_DAY = 20;

/** A refused object of a user. */
export interface RefusalOfUser extends ListedRefusal {
  requestId: string;
  /** Id of the endpoint. */
  operation: string;
}

/** Refused objects of one day that name a user by one identifier. */
export interface RefusedOfUser {
  workspaceId: string;
  name: Buffer;
  /** Day in UTC, for example `2026-11-28`. */
  day: string;
  /** Newest first, at most MAX_OF_DAY. */
  objects: RefusalOfUser[];
}

const digest = (data: Buffer | string) => createHash('sha256').update(data).digest();

/**
 * Returns the name under which refused objects of an identifier are stored. One identifier has different names in different
 * workspaces, so that rows of two workspaces cannot be related.
 */
export function nameOf(workspaceId: string, identifier: Identifier): Buffer {
  const workspace = Buffer.from(workspaceId.replaceAll('-', ''), 'hex');
  return digest(Buffer.concat([workspace, digest(identifierText(identifier))]));
}

/**
 * Returns SQL of the same name. All its functions are immutable, as Citus requires; `convert_to` is only stable.
 *
 * @param workspace SQL of the id of the workspace
 * @param text SQL of the identifier in the format of `identifierText`
 */
export const nameOfText = (workspace: string, text: string) =>
  `sha256(uuid_send(${workspace}) || sha256(decode(replace(${text}, '\\', '\\\\'), 'escape')))`;

/** Returns the day of a request in UTC. */
export function dayOf(requestId: string): string {
  return new Date(millisecondsOf(requestId)).toISOString().slice(0, 10);
}

/**
 * Upserts in primary key order, so that two web processes lock the rows in the same order. Adding objects a second time
 * has no effect. The JSON is put together as text, because `jsonb_agg` is only stable, and Citus requires immutable functions.
 */
const addStatement = withCitusForm(`
  insert into refused_of_users as kept (workspace_id, name, day, objects)
  select given.workspace_id, given.name, given.day, given.objects
  from unnest($1::uuid[], $2::bytea[], $3::date[], $4::jsonb[]) as given (workspace_id, name, day, objects)
  order by given.workspace_id, given.name, given.day
  on conflict (workspace_id, name, day) do update set objects = (
    select (
      '[' || string_agg(latest.object::text, ',' order by latest.object ->> 'requestId' desc, latest.object -> 'index')
      || ']')::jsonb
    from (
      select joined.object
      from jsonb_array_elements(excluded.objects || kept.objects) as joined (object)
      group by joined.object
      order by joined.object ->> 'requestId' desc, joined.object
      limit ${MAX_OF_DAY}
    ) as latest)`);

/** Adds refused objects of users. An identifier may occur only once for each day. */
export async function addRefusedOfUsers(pool: Pool, users: readonly RefusedOfUser[]): Promise<void> {
  if (users.length === 0) return;
  const ofWorkspace = { given: users, workspaceOf: ({ workspaceId }: RefusedOfUser) => workspaceId };
  await forEachWorkspace(pool, ofWorkspace, async (some) => {
    const rows = [...some];
    await pool.query({
      name: 'add-refused-of-users',
      text: addStatement,
      values: [
        uuidArray(rows, (row) => row.workspaceId),
        rows.map((row) => row.name),
        rows.map((row) => row.day),
        jsonArray(rows, (row) => row.objects),
      ],
    });
    return [];
  });
}

/** Reads by primary key: at most one row per identifier and day. */
const selectStatement = `
  select days.name, days.objects
  from unnest($2::bytea[]) as names (name)
  cross join lateral (
    select refused_of_users.name, refused_of_users.objects
    from refused_of_users
    where refused_of_users.workspace_id = $1::uuid and refused_of_users.name = names.name
      and refused_of_users.day > (now() at time zone 'UTC')::date - ${KEPT_DAYS}
    limit ${KEPT_DAYS} + 1
  ) as days`;

/** An identifier of a user. */
export interface NamedUntil {
  identifier: Identifier;
  /** Time at which the user lost it; absent for a present identifier. */
  until?: Date;
}

/** Returns the refused objects with these identifiers, each once, in any order. */
export async function selectRefusedOfUser(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  identifiers: readonly NamedUntil[],
): Promise<RefusalOfUser[]> {
  if (identifiers.length === 0) return [];
  const untilOf = new Map(
    identifiers.map(
      ({ identifier, until }) => [nameOf(workspaceId, identifier).toString('hex'), until] as const,
    ),
  );
  const { rows } = await pool.query<{ name: Buffer; objects: RefusalOfUser[] }>({
    name: 'select-refused-of-user',
    text: selectStatement,
    values: [workspaceId, [...untilOf.keys()].map((name) => Buffer.from(name, 'hex'))],
  });
  const found = new Map<string, RefusalOfUser>();
  for (const { name, objects } of rows) {
    const until = untilOf.get(name.toString('hex'));
    for (const object of objects) {
      if (until && millisecondsOf(object.requestId) >= until.getTime()) continue;
      found.set(`${object.requestId} ${object.inputArray} ${object.index}`, object);
    }
  }
  return [...found.values()];
}

/** Rows per transaction. */
const SLICE = 1000;

/** Reads a slice by the index refused_of_users_day, and deletes it by primary key. */
const forgetStatement = `
  delete from refused_of_users
  where (workspace_id, name, day) in (
    select old.workspace_id, old.name, old.day
    from refused_of_users as old
    where old.day <= (now() at time zone 'UTC')::date - ${KEPT_DAYS}
    limit ${SLICE})`;

/** Deletes refused objects of users that are older than 30 days, in slices of 1,000 rows. */
export async function forgetRefusedOfUsers(pool: Pool): Promise<void> {
  let deleted: number | null;
  do {
    ({ rowCount: deleted } = await pool.query(forgetStatement));
  } while (deleted === SLICE);
}
