import { nowDate } from '../platform/clock.ts';
import { integerArray, uuidArray } from './arrays.ts';
import type { Connection, Pool } from './database.ts';
import { isDistributed } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

export interface LaneCount {
  lane: number;
  envelopes: number;
  objects: number;
  deadLetters: number;
  applySeconds: number;
  /** Objects whose user also has an identifier of another lane. */
  namedElsewhere: number;
}

/** Upserts by primary key, sorted by lane. */
const countLanesStatement = `
  insert into lane_totals (lane, envelopes, objects, dead_letters, apply_seconds, named_elsewhere)
  select counted.lane, counted.envelopes, counted.objects, counted.dead_letters, counted.apply_seconds,
    counted.named_elsewhere
  from unnest($1::integer[], $2::integer[], $3::integer[], $4::integer[], $5::double precision[], $6::integer[])
    as counted (lane, envelopes, objects, dead_letters, apply_seconds, named_elsewhere)
  order by counted.lane
  on conflict (lane) do update set
    envelopes = lane_totals.envelopes + excluded.envelopes,
    objects = lane_totals.objects + excluded.objects,
    dead_letters = lane_totals.dead_letters + excluded.dead_letters,
    apply_seconds = lane_totals.apply_seconds + excluded.apply_seconds,
    named_elsewhere = lane_totals.named_elsewhere + excluded.named_elsewhere`;

export async function countLanes(tx: Connection, rows: LaneCount[]): Promise<void> {
  await tx.query({
    name: 'count-lanes',
    text: countLanesStatement,
    values: [
      integerArray(rows, (row) => row.lane),
      integerArray(rows, (row) => row.envelopes),
      integerArray(rows, (row) => row.objects),
      integerArray(rows, (row) => row.deadLetters),
      rows.map((row) => row.applySeconds),
      integerArray(rows, (row) => row.namedElsewhere),
    ],
  });
}

export interface UsageRow {
  workspaceId: string;
  lane: number;
  attributes: number;
  events: number;
  purchases: number;
  /** Identity operations. */
  identity: number;
  /** Changes of subscription and email states. */
  subscriptions: number;
}

/**
 * Upserts by primary key. The key contains the lane, so concurrent transactions never update the same row.
 */
const countUsageStatement = withCitusForm(`
  insert into usage (workspace_id, day, lane, attributes, events, purchases, identity, subscriptions)
  select counted.workspace_id, (now() at time zone 'UTC')::date, counted.lane, counted.attributes,
    counted.events, counted.purchases, counted.identity, counted.subscriptions
  from unnest($1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[])
    as counted (workspace_id, lane, attributes, events, purchases, identity, subscriptions)
  order by counted.workspace_id, counted.lane
  on conflict (workspace_id, day, lane) do update set
    attributes = usage.attributes + excluded.attributes,
    events = usage.events + excluded.events,
    purchases = usage.purchases + excluded.purchases,
    identity = usage.identity + excluded.identity,
    subscriptions = usage.subscriptions + excluded.subscriptions`);

/** Adds applied objects to the usage. Needs one row per workspace and lane. */
export async function countUsage(tx: Connection, rows: UsageRow[]): Promise<void> {
  await tx.query({
    name: 'count-usage',
    text: countUsageStatement,
    values: [
      uuidArray(rows, (row) => row.workspaceId),
      integerArray(rows, (row) => row.lane),
      integerArray(rows, (row) => row.attributes),
      integerArray(rows, (row) => row.events),
      integerArray(rows, (row) => row.purchases),
      integerArray(rows, (row) => row.identity),
      integerArray(rows, (row) => row.subscriptions),
    ],
  });
}

interface Totals {
  envelopes: number;
  /** Applied objects. */
  objects: number;
  /** Attempts that ended with a dead letter, including replays. */
  deadLetters: number;
  applySeconds: number;
  /** Objects whose user also has an identifier of another lane. */
  namedElsewhere: number;
  /** Dead letters that are currently waiting. Includes those of users who were just deleted. */
  waitingDeadLetters: number;
}

/** Reads one row per lane, and a partial index of the waiting dead letters. */
const readTotalsStatement = `
  select
    coalesce(sum(lane_totals.envelopes), 0)::float8 as envelopes,
    coalesce(sum(lane_totals.objects), 0)::float8 as objects,
    coalesce(sum(lane_totals.dead_letters), 0)::float8 as "deadLetters",
    coalesce(sum(lane_totals.apply_seconds), 0) as "applySeconds",
    coalesce(sum(lane_totals.named_elsewhere), 0)::float8 as "namedElsewhere",
    (select count(*)::float8 from dead_letters where dead_letters.state = 'waiting') as "waitingDeadLetters"
  from lane_totals`;

/** Returns the totals of all workers since the installation was created. */
export async function readTotals(pool: Pool): Promise<Totals> {
  const { rows } = await pool.query<Totals>({ name: 'read-totals', text: readTotalsStatement });
  return rows[0]!;
}

export interface UsageToday {
  workspace: string;
  attributes: number;
  events: number;
  purchases: number;
  identity: number;
  subscriptions: number;
}

/**
 * Reads the primary key at today's date for each workspace, without scanning other days. One row per
 * workspace and lane.
 */
const readUsageTodayStatement = `
  select
    workspaces.name as workspace,
    today.attributes, today.events, today.purchases, today.identity, today.subscriptions
  from workspaces
  cross join lateral (
    select
      count(*) as rows,
      sum(usage.attributes)::float8 as attributes,
      sum(usage.events)::float8 as events,
      sum(usage.purchases)::float8 as purchases,
      sum(usage.identity)::float8 as identity,
      sum(usage.subscriptions)::float8 as subscriptions
    from usage
    where usage.workspace_id = workspaces.id
      and usage.day = (now() at time zone 'UTC')::date
  ) as today
  where today.rows > 0
  order by workspaces.name`;

/** Variant for a distributed Postgres: sums up each shard and then joins the workspace names. */
const readUsageDistributedStatement = `
  with today as materialized (
    select
      usage.workspace_id,
      sum(usage.attributes)::float8 as attributes,
      sum(usage.events)::float8 as events,
      sum(usage.purchases)::float8 as purchases,
      sum(usage.identity)::float8 as identity,
      sum(usage.subscriptions)::float8 as subscriptions
    from usage
    where usage.day = $1::date
    group by usage.workspace_id
  )
  select
    workspaces.name as workspace,
    today.attributes, today.events, today.purchases, today.identity, today.subscriptions
  from today
  join workspaces on workspaces.id = today.workspace_id
  order by workspaces.name`;

async function readUsageDistributed(pool: Pool): Promise<UsageToday[]> {
  const today = nowDate().toISOString().slice(0, 10);
  const { rows } = await pool.query<UsageToday>(readUsageDistributedStatement, [today]);
  return rows;
}

/** Returns the applied objects of today (UTC) by workspace. */
export async function readUsageToday(pool: Pool): Promise<UsageToday[]> {
  if (await isDistributed(pool)) return readUsageDistributed(pool);
  const { rows } = await pool.query<UsageToday>({ name: 'read-usage-today', text: readUsageTodayStatement });
  return rows;
}
