import type { Pool } from './database.ts';

/** What the fleet has done since the installation was made: counters that only grow. */
export interface FleetCounters {
  /** Objects, through the edge and from warehouses. */
  accepted: number;
  /** Requests that were answered with 429 or 503. */
  refused: number;
  deadLetters: number;
  /** Objects that took effect, by lane. */
  applied: number[];
}

/** One snapshot, so that a process which leaves meanwhile is counted once. Few rows: of the last hour, and of lanes. */
const counters = `
  select
    coalesce(sum(told.objects) filter (where told.name in ('web', 'sync')), 0)::float8 as accepted,
    coalesce(sum(told.refused), 0)::float8 as refused,
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
  ) as told`;

/** @param lanes of the installation */
export async function readFleetCounters(pool: Pick<Pool, 'query'>, lanes: number): Promise<FleetCounters> {
  const { rows } = await pool.query<FleetCounters>({
    ...{ name: 'read-fleet-counters', text: counters, values: [lanes] },
  });
  return rows[0]!;
}

/** The fleet at one moment, as it is kept. */
export interface FleetRow extends FleetCounters {
  /** Jobs that wait or are in work, by lane; null: the queue did not say. */
  depth: number[] | null;
  /** Of the oldest job, by lane. */
  oldestSeconds: number[] | null;
  /** Workers that were heard. */
  workers: number;
  postgresMs: number;
  /** Null: there is no Redis, or it did not answer. */
  redisMs: number | null;
}

const isRecorded = `
  select from fleet_history
  where fleet_history.minutes = 1 and fleet_history.at = date_trunc('minute', statement_timestamp())`;

/** Whether this minute has its row. */
export async function isMinuteRecorded(pool: Pick<Pool, 'query'>): Promise<boolean> {
  const { rowCount } = await pool.query({ name: 'is-minute-recorded', text: isRecorded });
  return (rowCount ?? 0) > 0;
}

/** By primary key. Who comes second finds the minute's row, and adds nothing to what is longer. */
const record = `
  with recorded as (
    insert into fleet_history (minutes, at, looked_at, accepted, refused, dead_letters, applied, depth,
      oldest_seconds, workers, postgres_ms, redis_ms)
    values (1, date_trunc('minute', statement_timestamp()), statement_timestamp(), $1::bigint, $2::bigint, $3::bigint,
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
 * Writes the row of this minute, by the store's clock, and adds it to its quarter of an hour and its hour.
 * @returns whether it was written: another process may have been first
 */
export async function recordMinute(pool: Pick<Pool, 'query'>, row: FleetRow): Promise<boolean> {
  const { accepted, refused, deadLetters, applied, depth, oldestSeconds, workers, postgresMs, redisMs } = row;
  const values = [
    ...[accepted, refused, deadLetters, applied, depth, oldestSeconds, workers, postgresMs, redisMs],
  ];
  const { rowCount } = await pool.query({ name: 'record-minute', text: record, values });
  return (rowCount ?? 0) > 0;
}

const forget = `
  delete from fleet_history
  where (fleet_history.minutes in (1, 15) and fleet_history.at < statement_timestamp() - interval '25 hours')
    or (fleet_history.minutes = 60 and fleet_history.at < statement_timestamp() - interval '8 days')`;

/** Drops what is older than a chart looks back. */
export async function forgetFleetHistory(pool: Pick<Pool, 'query'>): Promise<void> {
  await pool.query({ name: 'forget-fleet-history', text: forget });
}

/** A row as it is read. */
export interface RecordedFleet extends FleetRow {
  at: Date;
  lookedAt: Date;
}

const read = `
  select fleet_history.at, fleet_history.looked_at as "lookedAt", fleet_history.accepted::float8 as accepted,
    fleet_history.refused::float8 as refused, fleet_history.dead_letters::float8 as "deadLetters",
    fleet_history.applied::float8[] as applied, fleet_history.depth, fleet_history.oldest_seconds as "oldestSeconds",
    fleet_history.workers, fleet_history.postgres_ms as "postgresMs", fleet_history.redis_ms as "redisMs"
  from fleet_history
  where fleet_history.minutes = $1::smallint and fleet_history.at >= $2::timestamptz
  order by fleet_history.at
  limit $3::integer`;

/** The most rows that a range can have. */
const MOST_ROWS = 1000;

/** How long a row's time may be. */
export type RowMinutes = 1 | 15 | 60;

/** Rows from a moment on, the oldest first. @param minutes how long a row's time is */
export async function readFleetHistory(
  pool: Pick<Pool, 'query'>,
  { minutes, from }: { minutes: RowMinutes; from: Date },
): Promise<RecordedFleet[]> {
  const values = [minutes, from, MOST_ROWS];
  const { rows } = await pool.query<RecordedFleet>({ name: 'read-fleet-history', text: read, values });
  return rows;
}
