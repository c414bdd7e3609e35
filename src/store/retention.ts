import { NIL_UUID } from '../platform/ids.ts';
import { type Connection, iso, openPool, type Pool } from './database.ts';
import type { ActivityTable } from './erasures.ts';
import { RETENTION_CONNECTIONS } from './pool-sizes.ts';

/** Aggregate over the texts of a column; src/object-store/parquet.ts has the same of a file. */
export const keyChecksum = (column: string) =>
  `coalesce(sum(('x' || substr(md5(${column}::text), 1, 15))::bit(60)::bigint), 0)::text`;

const time = (table: string) => `${iso(`${table}."time"`, 'US')} as "time"`;

/** What a row is archived as, in the order of its columns. */
const selected = {
  events: (table: string) => `
    ${table}.id, ${table}.profile_id as "profileId", ${table}.name, ${time(table)}, ${table}.app_id as "appId",
    ${table}.properties::text as properties`,
  purchases: (table: string) => `
    ${table}.id, ${table}.profile_id as "profileId", ${table}.product_id as "productId", ${table}.currency,
    ${table}.price::text as price, ${table}.quantity, ${time(table)}, ${table}.app_id as "appId",
    ${table}.properties::text as properties`,
};

/** An event or a purchase as texts. */
export type ActivityRow = {
  id: string;
  profileId: string;
  time: string;
  appId: string | null;
  properties: string | null;
  /** Of an event; what follows, of a purchase. */
  name?: string;
  productId?: string;
  currency?: string;
  price?: string;
  quantity?: number;
};

/** A row in the order of the primary key: of whom, and which. */
export interface Place {
  profileId: string;
  id: string;
}

/** Before every row. */
export const BEGINNING: Place = { profileId: NIL_UUID, id: NIL_UUID };

/** Rows of one workspace in a partition, or in the default one, which has other months as well. */
export interface RowsOf {
  workspaceId: string;
  kind: ActivityTable;
  /** The partition. */
  from: string;
}

/** By primary key, at most $4; ids behind $2 and before $3. */
const countRowsStatement = (table: string) => `
  select count(*)::integer as rows
  from (
    select
    from ${table}
    where ${table}.workspace_id = $1::uuid and ${table}.id > $2::uuid and ${table}.id < $3::uuid
    limit $4::integer
  ) as counted`;

/** Rows with ids behind `after` and before `before`, up to a limit. */
export async function countRows(
  pool: Pool,
  { workspaceId, from }: RowsOf,
  { after, before, limit }: { after: string; before: string; limit: number },
): Promise<number> {
  const values = [workspaceId, after, before, limit];
  const { rows } = await pool.query<{ rows: number }>({ text: countRowsStatement(from), values });
  return rows[0]!.rows;
}

/** A page in the order of the primary key: what it costs is what it has, whatever the month has. */
const readRowsStatement = (kind: ActivityTable, table: string) => `
  select ${selected[kind](table)}
  from ${table}
  where ${table}.workspace_id = $1::uuid and (${table}.profile_id, ${table}.id) > ($2::uuid, $3::uuid)
  order by ${table}.workspace_id, ${table}.profile_id, ${table}.id
  limit $4::integer`;

/** The rows behind a place, of whatever months the partition has. */
export async function readRows(
  pool: Pick<Pool, 'query'>,
  { workspaceId, kind, from }: RowsOf,
  { behind, limit }: { behind: Place; limit: number },
): Promise<ActivityRow[]> {
  const values = [workspaceId, behind.profileId, behind.id, limit];
  const { rows } = await pool.query<ActivityRow>({ text: readRowsStatement(kind, from), values });
  return rows;
}

/** By primary key. The months of a page's rows, and where it ends; null behind the last one. */
const lookAtMonthsStatement = (table: string) => `
  with looked as materialized (
    select ${table}.profile_id, ${table}.id
    from ${table}
    where ${table}.workspace_id = $1::uuid and (${table}.profile_id, ${table}.id) > ($2::uuid, $3::uuid)
    order by ${table}.workspace_id, ${table}.profile_id, ${table}.id
    limit $5::integer
  )
  select
    array(
      select distinct
        to_char(to_timestamp(('x' || left(replace(looked.id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
          at time zone 'UTC', 'YYYY-MM')
      from looked
      where looked.id < $4::uuid) as months,
    (
      select json_build_object('profileId', looked.profile_id, 'id', looked.id)
      from looked
      order by looked.profile_id desc, looked.id desc
      limit 1) as place`;

/** The months that the rows behind a place have, of ids before `before`: of so many rows, and the place of the last one. */
export async function lookAtMonths(
  pool: Pool,
  { workspaceId, from }: RowsOf,
  { behind, before, limit }: { behind: Place; before: string; limit: number },
): Promise<{ months: string[]; place: Place | null }> {
  const { rows } = await pool.query<{ months: string[]; place: Place | null }>({
    text: lookAtMonthsStatement(from),
    values: [workspaceId, behind.profileId, behind.id, before, limit],
  });
  return rows[0]!;
}

/** By the whole primary key; the bounds spare a look into the other months. */
const deleteRowsStatement = (table: string) => `
  delete from ${table}
  using unnest($2::uuid[], $3::uuid[]) as gone (profile_id, id)
  where ${table}.workspace_id = $1::uuid and ${table}.profile_id = gone.profile_id and ${table}.id = gone.id
    and ${table}.id >= $4::uuid and ${table}.id <= $5::uuid`;

/** @param rows not none */
export async function deleteRows(
  pool: Pick<Pool, 'query'>,
  table: string,
  { workspaceId, rows }: { workspaceId: string; rows: readonly Pick<ActivityRow, 'id' | 'profileId'>[] },
): Promise<number> {
  const ids = rows.map(({ id }) => id);
  const sorted = [...ids].sort();
  const values = [workspaceId, rows.map((row) => row.profileId), ids, sorted[0], sorted.at(-1)];
  const { rowCount } = await pool.query({ text: deleteRowsStatement(table), values });
  return rowCount ?? 0;
}

/** What a row has beside its key, given as texts: the member, the column that it becomes, and the type of that. */
const given: Record<ActivityTable, [member: keyof ActivityRow, column: string, type: string][]> = {
  events: [
    ['name', 'name', 'text'],
    ['time', 'time', 'timestamptz'],
    ['appId', 'app_id', 'text'],
    ['properties', 'properties', 'jsonb'],
  ],
  purchases: [
    ['productId', 'product_id', 'text'],
    ['currency', 'currency', 'text'],
    ['price', 'price', 'numeric'],
    ['quantity', 'quantity', 'integer'],
    ['time', 'time', 'timestamptz'],
    ['appId', 'app_id', 'text'],
    ['properties', 'properties', 'jsonb'],
  ],
};

/**
 * By primary keys. An owner is there, or was merged: whoever was deleted is neither, or has a tombstone. Owners are locked
 * against a delete, which otherwise might not see the rows of this transaction. What is there already stays.
 */
function insertOwnedStatement(kind: ActivityTable): string {
  const columns = given[kind];
  const names = columns.map(([, column]) => `"${column}"`);
  return `
  with given as materialized (
    select *
    from unnest($2::uuid[], $3::uuid[], ${columns.map((_, index) => `$${index + 4}::text[]`).join(', ')})
      as given (id, profile_id, ${names.join(', ')})
  ), present as materialized (
    select profiles.id
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.id = any($3::uuid[])
    order by profiles.id
    for key share
  ), merged as materialized (
    select merged_profiles.profile_id as id
    from merged_profiles
    where merged_profiles.workspace_id = $1::uuid and merged_profiles.profile_id = any($3::uuid[])
      and not exists (
        select from removed_profiles
        where removed_profiles.workspace_id = $1::uuid and removed_profiles.profile_id = merged_profiles.profile_id
          and removed_profiles.fate = 'deleted')
    order by merged_profiles.profile_id
    for key share of merged_profiles
  ), owned as materialized (
    select given.*
    from given
    where given.profile_id in (select present.id from present union all select merged.id from merged)
  ), inserted as (
    insert into ${kind} (workspace_id, id, profile_id, ${names.join(', ')})
    select $1::uuid, owned.id, owned.profile_id, ${columns.map(([, column, type]) => `owned."${column}"::${type}`).join(', ')}
    from owned
    on conflict do nothing
    returning 1
  )
  select
    (select count(*) from inserted)::integer as inserted,
    (select count(*) from given)::integer - (select count(*) from owned)::integer as "ofDeleted"`;
}

/** Puts rows back, without their sums: those were kept. Rows of deleted users are left out. */
export async function insertOwned(
  tx: Pick<Connection, 'query'>,
  kind: ActivityTable,
  { workspaceId, rows }: { workspaceId: string; rows: readonly ActivityRow[] },
): Promise<{ inserted: number; ofDeleted: number }> {
  const members: (keyof ActivityRow)[] = ['id', 'profileId', ...given[kind].map(([member]) => member)];
  const values = [workspaceId, ...members.map((member) => rows.map((row) => row[member] ?? null))];
  const text = insertOwnedStatement(kind);
  const found = await tx.query<{ inserted: number; ofDeleted: number }>({ text, values });
  return found.rows[0]!;
}

/** By primary keys. */
const findDeletedStatement = `
  select wanted.id
  from unnest($2::uuid[]) as wanted (id)
  where (
      select 1 from removed_profiles
      where removed_profiles.workspace_id = $1::uuid and removed_profiles.profile_id = wanted.id
        and removed_profiles.fate = 'deleted' limit 1) is not null
    or ((select 1 from profiles where profiles.workspace_id = $1::uuid and profiles.id = wanted.id limit 1) is null
      and (
        select 1 from merged_profiles
        where merged_profiles.workspace_id = $1::uuid and merged_profiles.profile_id = wanted.id limit 1) is null)`;

/** Those among the profiles who were deleted: they have a tombstone, or are neither there nor merged into somebody. */
export async function findDeleted(
  pool: Pool,
  workspaceId: string,
  profileIds: readonly string[],
): Promise<string[]> {
  const values = [workspaceId, profileIds];
  const { rows } = await pool.query<{ id: string }>({ text: findDeletedStatement, values });
  return rows.map(({ id }) => id);
}

/**
 * Deletes have to reach the archive of the workspace when the first of them is so many days old. One that has no file, as
 * its months went without an archive, has nothing to be erased from.
 */
const dueErasuresStatement = `
  select archive_erasures.workspace_id as id
  from archive_erasures
  where archive_erasures.since <= now() - make_interval(days => $1::integer)
    and exists (
      select from archive_files
      where archive_files.workspace_id = archive_erasures.workspace_id and archive_files.object is not null)
  order by archive_erasures.workspace_id`;

export async function dueErasures(pool: Pool, days: number): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>({ text: dueErasuresStatement, values: [days] });
  return rows.map(({ id }) => id);
}

const finishErasureStatement = `
  with later as (
    update archive_erasures set since = $2::timestamptz
    where archive_erasures.workspace_id = $1::uuid and archive_erasures.latest >= $2::timestamptz
  )
  delete from archive_erasures
  where archive_erasures.workspace_id = $1::uuid and archive_erasures.latest < $2::timestamptz`;

/**
 * Everything that was deleted before the instant is erased from the archive of the workspace.
 * @param before of Postgres's clock, as `readClock` gives it
 */
export async function finishErasure(pool: Pool, workspaceId: string, before: string): Promise<void> {
  await pool.query({ text: finishErasureStatement, values: [workspaceId, before] });
}

/** Milliseconds of one statement: a page, a file's row. The count of a detached partition has its own. */
const STATEMENT_TIMEOUT = 600_000;

/**
 * A pool for months that go. Every statement goes along the primary key: no table is read for some of its rows. None goes
 * on without end.
 */
export function openRetentionPool(databaseUrl: string): Pool {
  return openPool(databaseUrl, RETENTION_CONNECTIONS, {
    session: {
      ...{ enable_seqscan: 'off', enable_bitmapscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off' },
      ...{ plan_cache_mode: 'force_custom_plan', jit: 'off' },
      // The session of the lease rests while a file is written.
      ...{ statement_timeout: STATEMENT_TIMEOUT, idle_session_timeout: 0 },
    },
  });
}
