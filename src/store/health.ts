import type { Pool } from './database.ts';
import { readApplied } from './ledger.ts';

/** What a Postgres says of itself that our promises, or our speed, rest on. */
export interface PostgresHealth {
  /** As 160004. */
  version: number;
  /** By name, as SHOW has them. */
  settings: Record<string, string>;
  inRecovery: boolean;
  /** Of `max_connections`, those in use by whoever. */
  connections: number;
  /** Seconds of the oldest transaction of any session, but for vacuums; 0: there is none. */
  oldestTransactionSeconds: number;
  /** Epoch milliseconds, by the server's clock. */
  now: number;
}

const SETTINGS = [
  ...['fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'max_connections'],
  ...['track_counts', 'default_transaction_read_only', 'data_directory'],
];

const health = `
  select
    current_setting('server_version_num')::integer as version,
    (
      select jsonb_object_agg(pg_settings.name, pg_settings.setting)
      from pg_settings
      where pg_settings.name = any ($1::text[])
    ) as settings,
    pg_is_in_recovery() as "inRecovery",
    (select count(*)::integer from pg_stat_activity where pg_stat_activity.backend_type = 'client backend')
      as connections,
    (
      select coalesce(max(extract(epoch from clock_timestamp() - pg_stat_activity.xact_start)), 0)::float8
      from pg_stat_activity
      where pg_stat_activity.backend_type = 'client backend'
    ) as "oldestTransactionSeconds",
    (extract(epoch from clock_timestamp()) * 1000)::float8 as now`;

export async function readPostgresHealth(pool: Pick<Pool, 'query'>): Promise<PostgresHealth> {
  const { rows } = await pool.query<PostgresHealth>(health, [SETTINGS]);
  return rows[0]!;
}

/** `fence_arrivals` holds hardly more than the fences at which a lane waits now. */
const arrivals = `
  select
    fence_arrivals.fence_id::text as id,
    max(extract(epoch from now() - fence_arrivals.arrived_at))::float8 as seconds
  from fence_arrivals
  where fence_arrivals.arrived_at < now() - make_interval(secs => $1::integer)
  group by fence_arrivals.fence_id`;

/** Fences that are not passed and at which a lane has stood for so many seconds, and for how long the oldest has. */
export async function readStuckFences(
  pool: Pick<Pool, 'query'>,
  afterSeconds: number,
): Promise<{ fences: number; seconds: number }> {
  const { rows } = await pool.query<{ id: string; seconds: number }>(arrivals, [afterSeconds]);
  if (rows.length === 0) return { fences: 0, seconds: 0 };
  const passed = await readApplied(
    pool,
    rows.map(({ id }) => id),
  );
  const stuck = rows.filter(({ id }) => !passed.has(id));
  return { fences: stuck.length, seconds: Math.max(0, ...stuck.map(({ seconds }) => seconds)) };
}

/** As `ensure_month_partitions` names them. */
const missing = `
  select wanted.name
  from (
    select kind || '_' || to_char(
      date_trunc('month', now(), 'UTC') at time zone 'UTC' + make_interval(months => step), 'YYYY_MM') as name
    from unnest(array['events', 'purchases']) as kind
    cross join generate_series(0, $1::integer) as step
  ) as wanted
  where to_regclass(wanted.name) is null
  order by wanted.name`;

/** Partitions of this month and the next so many that are not there. */
export async function findMissingPartitions(pool: Pick<Pool, 'query'>, months: number): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(missing, [months]);
  return rows.map(({ name }) => name);
}

/** What a table takes, with all of its partitions. */
export interface TableSize {
  table: string;
  /** Bytes of its rows, of values that are kept apart (TOAST), and of its indexes. */
  heapBytes: number;
  toastBytes: number;
  indexBytes: number;
  /** As the statistics have it: rows, and versions of rows that wait for a vacuum. */
  liveRows: number;
  deadRows: number;
  /** 0: it has none. */
  partitions: number;
}

/** What of a table's file is the table itself is counted by its main fork; the catalog has some hundred rows. */
const tables = `
  select
    root.table::regclass::text as "table",
    sum(pg_relation_size(root.id))::float8 as "heapBytes",
    sum(case when pg_class.reltoastrelid = 0 then 0
      else pg_total_relation_size(pg_class.reltoastrelid) end)::float8 as "toastBytes",
    sum(pg_indexes_size(root.id))::float8 as "indexBytes",
    sum(coalesce(pg_stat_get_live_tuples(root.id), 0))::float8 as "liveRows",
    sum(coalesce(pg_stat_get_dead_tuples(root.id), 0))::float8 as "deadRows",
    sum(pg_class.relispartition::integer)::integer as partitions
  from pg_class
  cross join lateral (
    select pg_class.oid as id, coalesce(pg_partition_root(pg_class.oid)::oid, pg_class.oid) as "table"
  ) as root
  where pg_class.relkind = 'r'
    and pg_class.relnamespace = any (array[
      'public'::regnamespace, coalesce(to_regnamespace('bullmq'), 'public'::regnamespace)]::oid[])
  group by root.table
  order by sum(pg_total_relation_size(root.id)) desc
  limit $1::integer`;

/** The largest tables of the installation, and of its queue in Postgres, by what they take. */
export async function readTableSizes(pool: Pick<Pool, 'query'>, limit: number): Promise<TableSize[]> {
  const { rows } = await pool.query<TableSize>({ name: 'read-table-sizes', text: tables, values: [limit] });
  return rows;
}

export interface PartitionSize {
  table: string;
  partition: string;
  bytes: number;
}

const partitions = `
  select
    pg_inherits.inhparent::regclass::text as "table",
    pg_class.relname as partition,
    pg_total_relation_size(pg_class.oid)::float8 as bytes
  from pg_inherits
  join pg_class on pg_class.oid = pg_inherits.inhrelid
  where pg_class.relkind = 'r' and pg_class.relnamespace = 'public'::regnamespace
  order by pg_class.relname desc
  limit $1::integer`;

/** Of the tables that are partitioned by month, those with the last names. */
export async function readPartitionSizes(pool: Pick<Pool, 'query'>, limit: number): Promise<PartitionSize[]> {
  const { rows } = await pool.query<PartitionSize>({
    name: 'read-partition-sizes',
    text: partitions,
    values: [limit],
  });
  return rows;
}

export interface Replication {
  /** Replicas that are connected. */
  replicas: number;
  /** Seconds by which the slowest is behind; null: there is none, all are idle, or the role may not see it. */
  lagSeconds: number | null;
  /** Bytes of the log that the slowest has not replayed; null as above. */
  lagBytes: number | null;
}

/** Roles without pg_monitor see that there are replicas, and no more. A server that is itself a replica has no log of its own. */
const replication = `
  select
    count(*)::integer as replicas,
    max(extract(epoch from pg_stat_replication.replay_lag))::float8 as "lagSeconds",
    case when pg_is_in_recovery() then null
      else max(pg_wal_lsn_diff(pg_current_wal_lsn(), pg_stat_replication.replay_lsn))::float8
    end as "lagBytes"
  from pg_stat_replication`;

/** How far the replicas of Postgres are behind. */
export async function readReplication(pool: Pick<Pool, 'query'>): Promise<Replication> {
  const { rows } = await pool.query<Replication>({ name: 'read-replication', text: replication });
  return rows[0]!;
}
