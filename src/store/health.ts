import type { Pool } from './database.ts';

/** State and settings of Postgres that durability or performance depend on. */
export interface PostgresHealth {
  /** Version as a number, for example 160004. */
  version: number;
  /** Values by setting name, as in pg_settings. */
  settings: Record<string, string>;
  inRecovery: boolean;
  /** Pages that failed their checksum since the statistics were reset; 0 without checksums. */
  damagedPages: number;
  /** Number of client connections of all programs, out of `max_connections`. */
  connections: number;
  /** Age in seconds of the oldest transaction of any client session, or 0. */
  oldestTransactionSeconds: number;
  /** Epoch milliseconds by the server's clock. */
  now: number;
}

const SETTINGS = [
  ...['fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'max_connections'],
  ...['track_counts', 'default_transaction_read_only', 'data_directory', 'data_checksums'],
];

const healthStatement = `
  select
    current_setting('server_version_num')::integer as version,
    (
      select jsonb_object_agg(pg_settings.name, pg_settings.setting)
      from pg_settings
      where pg_settings.name = any ($1::text[])
    ) as settings,
    pg_is_in_recovery() as "inRecovery",
    (
      select coalesce(sum(pg_stat_database.checksum_failures), 0)::float8
      from pg_stat_database
      where pg_stat_database.datname = current_database() or pg_stat_database.datid = 0
    ) as "damagedPages",
    (select count(*)::integer from pg_stat_activity where pg_stat_activity.backend_type = 'client backend')
      as connections,
    (
      select coalesce(max(extract(epoch from pg_catalog.clock_timestamp() - pg_stat_activity.xact_start)), 0)::float8
      from pg_stat_activity
      where pg_stat_activity.backend_type = 'client backend'
        -- A session with an advisory lock is idle on purpose, for example during an import.
        and not exists (
          select from pg_locks
          where pg_locks.pid = pg_stat_activity.pid and pg_locks.locktype = 'advisory'
        )
    ) as "oldestTransactionSeconds",
    (extract(epoch from pg_catalog.clock_timestamp()) * 1000)::float8 as now`;

export async function readPostgresHealth(pool: Pick<Pool, 'query'>): Promise<PostgresHealth> {
  const { rows } = await pool.query<PostgresHealth>(healthStatement, [SETTINGS]);
  return rows[0]!;
}

/** Size of a table including all partitions. */
export interface TableSize {
  table: string;
  /** Bytes of the rows, of out-of-line values (TOAST), and of the indexes. */
  heapBytes: number;
  toastBytes: number;
  indexBytes: number;
  /** Estimates of the statistics: live rows, and dead row versions that VACUUM has not removed yet. */
  liveRows: number;
  deadRows: number;
  /** Number of partitions; 0 if the table is not partitioned. */
  partitions: number;
}

/** `heapBytes` is the main fork of the table's file. The catalog has a few hundred rows. */
const tableSizesStatement = `
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

/** Returns the largest tables of the installation, including its queue in Postgres, by size. */
export async function readTableSizes(pool: Pick<Pool, 'query'>, limit: number): Promise<TableSize[]> {
  const { rows } = await pool.query<TableSize>({
    name: 'read-table-sizes',
    text: tableSizesStatement,
    values: [limit],
  });
  return rows;
}

interface Replication {
  /** Number of connected replicas. */
  replicas: number;
  /**
   * Lag in seconds of the slowest replica. Null if there are no replicas, if all are idle, or if the role
   * lacks the permission.
   */
  lagSeconds: number | null;
  /** Bytes of WAL that the slowest replica has not replayed; null as above. */
  lagBytes: number | null;
}

/**
 * Roles without pg_monitor see only the number of replicas. A server that is itself a replica writes no WAL.
 */
const replicationStatement = `
  select
    count(*)::integer as replicas,
    max(extract(epoch from pg_stat_replication.replay_lag))::float8 as "lagSeconds",
    case when pg_is_in_recovery() then null
      else max(pg_wal_lsn_diff(pg_current_wal_lsn(), pg_stat_replication.replay_lsn))::float8
    end as "lagBytes"
  from pg_stat_replication`;

/** Returns the number of replicas and their lag. */
export async function readReplication(pool: Pick<Pool, 'query'>): Promise<Replication> {
  const { rows } = await pool.query<Replication>({ name: 'read-replication', text: replicationStatement });
  return rows[0]!;
}

/** Counters of the whole installation since its creation. They only increase. */
export interface FleetCounters {
  /** Objects accepted by web and from warehouses. */
  accepted: number;
  /** Requests answered with 429 or 503. */
  refused: number;
  deadLetters: number;
  /** Applied objects by lane. */
  applied: number[];
}

/**
 * Reads one snapshot, so that a process that ends in between is counted once. The tables are small: processes
 * of the last hour, and lanes.
 */
const countersStatement = `
  select
    coalesce(sum(counted.objects) filter (where counted.name in ('web', 'sync')), 0)::float8 as accepted,
    coalesce(sum(counted.refused), 0)::float8 as refused,
    (select coalesce(sum(lane_totals.dead_letters), 0)::float8 from lane_totals) as "deadLetters",
    array(
      select coalesce(lane_totals.objects, 0)::float8
      from generate_series(0, $1::integer - 1) as lanes (lane)
      left join lane_totals on lane_totals.lane = lanes.lane
      order by lanes.lane
    ) as applied
  from (
    select processes.name, processes.objects, processes.refused from processes
    union all
    select departed_processes.name, departed_processes.objects, departed_processes.refused
    from departed_processes
  ) as counted`;

/** @param lanes number of lanes of the installation */
export async function readFleetCounters(pool: Pick<Pool, 'query'>, lanes: number): Promise<FleetCounters> {
  const { rows } = await pool.query<FleetCounters>({
    ...{ name: 'read-fleet-counters', text: countersStatement, values: [lanes] },
  });
  return rows[0]!;
}

/** A stored sample of the fleet. */
export interface FleetRow extends FleetCounters {
  /** Waiting and active jobs by lane. Null if the queue did not respond. */
  depth: number[] | null;
  /** Age in seconds of the oldest job, by lane. */
  oldestSeconds: number[] | null;
  /** Number of live workers. */
  workers: number;
  postgresMs: number;
  /** Null if there is no Redis or it did not respond. */
  redisMs: number | null;
}

const isRecordedStatement = `
  select from fleet_history
  where fleet_history.minutes = 1 and fleet_history.at = date_trunc('minute', pg_catalog.statement_timestamp())`;

/** Returns whether the row of the current minute exists. */
export async function isMinuteRecorded(pool: Pick<Pool, 'query'>): Promise<boolean> {
  const { rowCount } = await pool.query({ name: 'is-minute-recorded', text: isRecordedStatement });
  return (rowCount ?? 0) > 0;
}

/**
 * Inserts by primary key. A second process finds the minute's row and leaves the quarter-hour and hour rows
 * unchanged.
 */
const recordMinuteStatement = `
  with recorded as (
    insert into fleet_history (minutes, at, looked_at, accepted, refused, dead_letters, applied, depth,
      oldest_seconds, workers, postgres_ms, redis_ms)
    values (1, date_trunc('minute', pg_catalog.statement_timestamp()), pg_catalog.statement_timestamp(), $1::bigint, $2::bigint, $3::bigint,
      $4::bigint[], $5::integer[], $6::real[], $7::integer, $8::real, $9::real)
    on conflict (minutes, at) do nothing
    returning *
  )
  insert into fleet_history as kept (minutes, at, looked_at, accepted, refused, dead_letters, applied, depth,
    oldest_seconds, workers, postgres_ms, redis_ms)
  select kinds.minutes, date_bin(make_interval(mins => kinds.minutes), recorded.at, 'epoch'), recorded.looked_at, recorded.accepted,
    recorded.refused, recorded.dead_letters, recorded.applied, recorded.depth, recorded.oldest_seconds, recorded.workers,
    recorded.postgres_ms, recorded.redis_ms
  from recorded
  cross join (values (15), (60)) as kinds (minutes)
  on conflict (minutes, at) do update set
    looked_at = excluded.looked_at,
    accepted = excluded.accepted,
    refused = excluded.refused,
    dead_letters = excluded.dead_letters,
    applied = excluded.applied,
    depth = (
      select array_agg(greatest(lanes.before, lanes.now) order by lanes.lane)
      from unnest(kept.depth, excluded.depth) with ordinality as lanes (before, now, lane)
    ),
    oldest_seconds = (
      select array_agg(greatest(lanes.before, lanes.now) order by lanes.lane)
      from unnest(kept.oldest_seconds, excluded.oldest_seconds) with ordinality as lanes (before, now, lane)
    ),
    workers = least(kept.workers, excluded.workers),
    postgres_ms = greatest(kept.postgres_ms, excluded.postgres_ms),
    redis_ms = greatest(kept.redis_ms, excluded.redis_ms)`;

/**
 * Writes the row of the current minute, by the store's clock, and adds it to the rows of its quarter-hour and
 * hour.
 *
 * @returns false if another process has written it
 */
export async function recordMinute(pool: Pick<Pool, 'query'>, row: FleetRow): Promise<boolean> {
  const { accepted, refused, deadLetters, applied, depth, oldestSeconds, workers, postgresMs, redisMs } = row;
  const values = [
    ...[accepted, refused, deadLetters, applied, depth, oldestSeconds, workers, postgresMs, redisMs],
  ];
  const { rowCount } = await pool.query({ name: 'record-minute', text: recordMinuteStatement, values });
  return (rowCount ?? 0) > 0;
}

const forgetHistoryStatement = `
  delete from fleet_history
  where (fleet_history.minutes in (1, 15) and fleet_history.at < pg_catalog.statement_timestamp() - interval '25 hours')
    or (fleet_history.minutes = 60 and fleet_history.at < pg_catalog.statement_timestamp() - interval '8 days')`;

/** Deletes rows that are older than the charts show. */
export async function forgetFleetHistory(pool: Pick<Pool, 'query'>): Promise<void> {
  await pool.query({ name: 'forget-fleet-history', text: forgetHistoryStatement });
}

/** A stored row. */
export interface RecordedFleet extends FleetRow {
  at: Date;
  lookedAt: Date;
}

const readHistoryStatement = `
  select fleet_history.at, fleet_history.looked_at as "lookedAt", fleet_history.accepted::float8 as accepted,
    fleet_history.refused::float8 as refused, fleet_history.dead_letters::float8 as "deadLetters",
    fleet_history.applied::float8[] as applied, fleet_history.depth, fleet_history.oldest_seconds as "oldestSeconds",
    fleet_history.workers, fleet_history.postgres_ms as "postgresMs", fleet_history.redis_ms as "redisMs"
  from fleet_history
  where fleet_history.minutes = $1::smallint and fleet_history.at >= $2::timestamptz
  order by fleet_history.at
  limit $3::integer`;

/** Maximum number of rows per query. */
const MAX_ROWS = 1000;

/** Minutes that a row covers. */
export type RowMinutes = 1 | 15 | 60;

/** Returns the rows since a time, oldest first. @param minutes minutes that a row covers */
export async function readFleetHistory(
  pool: Pick<Pool, 'query'>,
  { minutes, from }: { minutes: RowMinutes; from: Date },
): Promise<RecordedFleet[]> {
  const values = [minutes, from, MAX_ROWS];
  const { rows } = await pool.query<RecordedFleet>({
    name: 'read-fleet-history',
    text: readHistoryStatement,
    values,
  });
  return rows;
}
