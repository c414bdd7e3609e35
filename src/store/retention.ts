import { NIL_UUID } from '../platform/ids.ts';
import { type Connection, iso, openPool, type Pool } from './database.ts';
import type { ActivityTable } from './erasures.ts';
import { RETENTION_CONNECTIONS } from './pool-sizes.ts';

/**
 * SQL aggregate that computes a checksum of a column. src/object-store/parquet.ts has the counterpart for
 * files.
 */
export const keyChecksum = (column: string) =>
  `coalesce(sum(('x' || substr(md5(${column}::text), 1, 15))::bit(60)::bigint), 0)::text`;

const time = (table: string) => `${iso(`${table}."time"`, 'US')} as "time"`;

/** Select lists of archived rows, in column order. */
const selectLists = {
  events: (table: string) => `
    ${table}.id, ${table}.profile_id as "profileId", ${table}.name, ${time(table)}, ${table}.app_id as "appId",
    ${table}.properties::text as properties`,
  purchases: (table: string) => `
    ${table}.id, ${table}.profile_id as "profileId", ${table}.product_id as "productId", ${table}.currency,
    ${table}.price::text as price, ${table}.quantity, ${time(table)}, ${table}.app_id as "appId",
    ${table}.properties::text as properties`,
};

/** An event or a purchase with its values as text. */
export type ActivityRow = {
  id: string;
  profileId: string;
  time: string;
  appId: string | null;
  properties: string | null;
  /** Events only. The fields after it are for purchases only. */
  name?: string;
  productId?: string;
  currency?: string;
  price?: string;
  quantity?: number;
};

/** Position of a row in the order of the primary key. */
export interface RowPosition {
  profileId: string;
  id: string;
}

/** Position before the first row. */
export const BEGINNING: RowPosition = { profileId: NIL_UUID, id: NIL_UUID };

/** Rows of one workspace in a partition. The default partition also has rows of other months. */
export interface RowsOf {
  workspaceId: string;
  kind: ActivityTable;
  /** Name of the partition. */
  from: string;
}

/** Counts by primary key up to $4 rows with ids after $2 and before $3. */
const countRowsStatement = (table: string) => `
  select count(*)::integer as rows
  from (
    select
    from ${table}
    where ${table}.workspace_id = $1::uuid and ${table}.id > $2::uuid and ${table}.id < $3::uuid
    limit $4::integer
  ) as counted`;

/** Counts rows with ids after `after` and before `before`, up to a limit. */
export async function countRows(
  pool: Pool,
  { workspaceId, from }: RowsOf,
  { after, before, limit }: { after: string; before: string; limit: number },
): Promise<number> {
  const values = [workspaceId, after, before, limit];
  const { rows } = await pool.query<{ rows: number }>({ text: countRowsStatement(from), values });
  return rows[0]!.rows;
}

/** Reads a page in primary key order, so that its cost depends on the page and not on the month. */
const readRowsStatement = (kind: ActivityTable, table: string) => `
  select ${selectLists[kind](table)}
  from ${table}
  where ${table}.workspace_id = $1::uuid and (${table}.profile_id, ${table}.id) > ($2::uuid, $3::uuid)
  order by ${table}.workspace_id, ${table}.profile_id, ${table}.id
  limit $4::integer`;

/** Returns the rows after a position, whatever their month. */
export async function readRows(
  pool: Pick<Pool, 'query'>,
  { workspaceId, kind, from }: RowsOf,
  { behind, limit }: { behind: RowPosition; limit: number },
): Promise<ActivityRow[]> {
  const values = [workspaceId, behind.profileId, behind.id, limit];
  const { rows } = await pool.query<ActivityRow>({ text: readRowsStatement(kind, from), values });
  return rows;
}

/**
 * Reads by primary key. Returns the months of a page's rows and the position of the page's last row; the
 * position is null after the last page.
 */
const scanMonthsStatement = (table: string) => `
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

/**
 * Returns the months of the next `limit` rows after a position, counting only ids before `before`, and the
 * position of the last row.
 */
export async function scanMonths(
  pool: Pool,
  { workspaceId, from }: RowsOf,
  { behind, before, limit }: { behind: RowPosition; before: string; limit: number },
): Promise<{ months: string[]; place: RowPosition | null }> {
  const { rows } = await pool.query<{ months: string[]; place: RowPosition | null }>({
    text: scanMonthsStatement(from),
    values: [workspaceId, behind.profileId, behind.id, before, limit],
  });
  return rows[0]!;
}

/** Deletes by the whole primary key. The id bounds exclude the partitions of other months. */
const deleteRowsStatement = (table: string) => `
  delete from ${table}
  using unnest($2::uuid[], $3::uuid[]) as gone (profile_id, id)
  where ${table}.workspace_id = $1::uuid and ${table}.profile_id = gone.profile_id and ${table}.id = gone.id
    and ${table}.id >= $4::uuid and ${table}.id <= $5::uuid`;

/** @param rows must not be empty */
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

/** Columns of a row apart from its key, which are given as text: field, column, and type of the column. */
const valueColumns: Record<ActivityTable, [member: keyof ActivityRow, column: string, type: string][]> = {
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
 * Inserts by primary key. The owner of a row must exist or have been merged. A deleted user has a tombstone
 * or neither of these rows. Owners are locked against a concurrent delete, which might not see the rows of
 * this transaction. Existing rows are kept.
 */
function insertOwnedStatement(kind: ActivityTable): string {
  const columns = valueColumns[kind];
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

/**
 * Restores archived rows. Their summaries were never removed and are not updated. Rows of deleted users are
 * omitted.
 */
export async function insertOwned(
  tx: Pick<Connection, 'query'>,
  kind: ActivityTable,
  { workspaceId, rows }: { workspaceId: string; rows: readonly ActivityRow[] },
): Promise<{ inserted: number; ofDeleted: number }> {
  const members: (keyof ActivityRow)[] = ['id', 'profileId', ...valueColumns[kind].map(([member]) => member)];
  const values = [workspaceId, ...members.map((member) => rows.map((row) => row[member] ?? null))];
  const text = insertOwnedStatement(kind);
  const result = await tx.query<{ inserted: number; ofDeleted: number }>({ text, values });
  return result.rows[0]!;
}

/** Reads by primary keys. */
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

/**
 * Returns those of the profiles that were deleted: they have a tombstone, or neither a profile nor a merge
 * record exists.
 */
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
 * Selects workspaces whose oldest pending delete is at least $1 days old and has to be applied to the
 * archive. Workspaces without archive files, whose months were dropped without an archive, are skipped.
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
 * Records that everything deleted before a time is erased from the archive of the workspace.
 *
 * @param before time by Postgres's clock, from `readClock`
 */
export async function finishErasure(pool: Pool, workspaceId: string, before: string): Promise<void> {
  await pool.query({ text: finishErasureStatement, values: [workspaceId, before] });
}

/**
 * Timeout in milliseconds of a statement that reads or writes a page or a file's row. The count of a detached
 * partition has its own.
 */
const STATEMENT_TIMEOUT = 600_000;

/**
 * Opens a pool for archiving and dropping months. Every statement reads by the primary key, so that no table
 * is scanned for a few of its rows, and every statement has a timeout.
 */
export function openRetentionPool(databaseUrl: string): Pool {
  return openPool(databaseUrl, RETENTION_CONNECTIONS, {
    session: {
      ...{ enable_seqscan: 'off', enable_bitmapscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off' },
      ...{ plan_cache_mode: 'force_custom_plan', jit: 'off' },
      // The session that holds the lease is idle while a file is written.
      ...{ statement_timeout: STATEMENT_TIMEOUT, idle_session_timeout: 0 },
    },
  });
}
